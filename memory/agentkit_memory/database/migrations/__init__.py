"""Alembic revisions of the tables, which upgrade an older database when it is opened."""
