"""Models: what a composition is sent to, and what comes back."""

from agentkit_prompts.lazy import exports_of_stub

__getattr__, __dir__, __all__ = exports_of_stub(__name__, __file__)
