"""Agents over HTTP: OpenAI-compatible endpoints, sessions, runs. Needs the extra `server`."""

from agentkit_prompts.lazy import exports_of_stub

__getattr__, __dir__, __all__ = exports_of_stub(__name__, __file__)
