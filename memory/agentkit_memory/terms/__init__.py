"""Terms of texts, and BM25 as sparse vectors."""
