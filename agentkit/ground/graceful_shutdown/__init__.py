"""Shutdown of servers: end of running requests."""
