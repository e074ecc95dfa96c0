"""Stored runs of agents: the record of a run, the store in SQL, and the protocol of executors."""
