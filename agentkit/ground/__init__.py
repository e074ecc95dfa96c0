"""Modules that all packages of agentkit use: threads, event loops, checks of options, JSON of requests."""
