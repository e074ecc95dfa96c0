"""Threads, event loops, forks and crashes: what concerns the process as a whole."""
