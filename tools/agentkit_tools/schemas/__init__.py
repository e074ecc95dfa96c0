"""Descriptions and parameters of tools, from functions, docstrings and JSON Schemas."""
