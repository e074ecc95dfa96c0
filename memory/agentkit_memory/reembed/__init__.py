"""Changing the model that a store is read by."""
