"""Endpoints of our own: runs, sessions, operations, the inspector."""
