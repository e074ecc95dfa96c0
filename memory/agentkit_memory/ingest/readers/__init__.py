"""A file to blocks of text: one reader per format."""
