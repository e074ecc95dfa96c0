"""Agents in files: `agent.yaml`, its checks and its schema; a Python module `module:agent` in its place."""

from agentkit_prompts.lazy import exports_of_stub

__getattr__, __dir__, __all__ = exports_of_stub(__name__, __file__)
