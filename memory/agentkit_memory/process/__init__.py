"""Threads, event loops, forks and crashes of the process."""
