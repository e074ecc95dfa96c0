"""The built-in models: rows of role markers, and the classes that some of them need."""
