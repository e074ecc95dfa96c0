"""Alembic revisions of the tables, run when a store is opened on an empty or older database."""
