"""agentkit: tool-calling agents whose prompt is a typed, layered, inspectable tree."""

from agentkit_prompts.lazy import exports_of_stub

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = exports_of_stub(__name__, __file__)
