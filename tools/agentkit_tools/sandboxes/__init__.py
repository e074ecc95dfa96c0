"""Sandboxes: execution of code that a model or a skill wrote."""
