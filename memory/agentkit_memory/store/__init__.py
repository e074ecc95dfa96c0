"""Rows in SQL: scopes, items, images, spaces, logs, and the outbox of the index."""
