"""Erasure of a subject from SQL and from every index, and the proof that nothing is left."""
