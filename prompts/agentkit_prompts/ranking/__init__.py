"""BM25, MMR and the protocol of embedders, for example selectors and memory."""
