"""Durable runs: runs that outlive their process, on any number of workers. See `Runs` for how a server uses them."""

from agentkit_prompts.lazy import exports_of_stub

__getattr__, __dir__, __all__ = exports_of_stub(__name__, __file__)
