"""What a model is told about a tool: from functions, docstrings and JSON Schemas."""
