"""Embedding models: adapters to some of them, and the checks and the storage of their vectors."""
