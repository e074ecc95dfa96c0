"""Composition of layers and a context: compose, fit into a budget, explain, convert to a request."""
