"""Runs of the server: started, kept, listed, limited per tenant."""
