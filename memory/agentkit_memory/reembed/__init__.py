"""Change of the embedding model of a store."""
