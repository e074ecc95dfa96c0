"""Params of templates, the merged schema of a tree, and the check of values against it."""
