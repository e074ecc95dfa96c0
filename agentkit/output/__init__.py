"""Typed answers: their request, reading, validation and repair."""
