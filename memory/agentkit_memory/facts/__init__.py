"""Facts taken from what was said, in the background, by a model that somebody else brings."""
