"""SQL: the truth of what is remembered."""
