"""Execution of one run: its loop, the code that performs its steps, and its events."""
