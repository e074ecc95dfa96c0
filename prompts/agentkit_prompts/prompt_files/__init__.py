"""Prompts in files: front matter, one file, a folder that is read again as a whole."""
