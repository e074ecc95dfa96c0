"""Modules for all packages of agentkit: threads, event loops, checks of options, JSON of requests."""
