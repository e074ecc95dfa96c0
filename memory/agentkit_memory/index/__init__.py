"""The vector index, which can be built again from SQL at any time."""
