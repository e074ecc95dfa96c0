"""Durable runs: runs that outlive their process, on any number of workers. See `Runs` for how a server uses them."""
