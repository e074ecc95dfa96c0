"""What a model reads about a tool: from functions, docstrings and JSON Schemas."""
