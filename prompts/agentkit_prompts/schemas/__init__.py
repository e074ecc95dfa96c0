"""JSON Schemas of template params, of the kwargs of prompts, and of tools: validation, and forms for providers."""
