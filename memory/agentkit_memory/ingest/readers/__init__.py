"""Readers of files as blocks of text, one per format."""
