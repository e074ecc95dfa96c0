"""Execution of runs by the server, limits per tenant, and the form of events and errors for clients."""
