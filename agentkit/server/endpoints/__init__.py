"""Endpoints of runs, sessions, operations and the inspector."""
