"""Erasing a subject from SQL and from every index, and the proof that nothing of it is left."""
