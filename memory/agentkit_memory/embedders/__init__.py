"""Embedding models: adapters to some models, and checks and storage of vectors."""
