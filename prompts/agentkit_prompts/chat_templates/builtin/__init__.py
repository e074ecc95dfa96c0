"""Built-in models: rows of role markers, and classes for some models."""
