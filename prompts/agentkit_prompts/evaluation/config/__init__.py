"""Readers of the configurations of evaluation suites, which have limits and run no code."""
