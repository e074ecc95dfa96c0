"""Token counters, and limits of tokens."""
