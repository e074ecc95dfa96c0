"""SQL, the source of truth: tables, scopes, items, and the outbox of the index."""
