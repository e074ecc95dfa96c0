"""BM25, MMR and the protocol of embedders: what example selectors and memory share."""
