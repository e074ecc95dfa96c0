"""Reader of web pages: the text that a person sees, in blocks, from HTML in any encoding of the web."""
