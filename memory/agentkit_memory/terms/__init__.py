"""Text to terms, and BM25 as sparse vectors."""
