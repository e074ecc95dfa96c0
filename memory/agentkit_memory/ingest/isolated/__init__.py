"""Readers of formats that a separate process parses, with limited memory and time."""
