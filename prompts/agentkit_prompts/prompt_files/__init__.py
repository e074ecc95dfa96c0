"""Prompts in files: front matter, prompt files, and folders that are reloaded as a whole."""
