"""The vector index: an index of what SQL holds, never the truth."""
