"""Layer 1 of agentkit: the prompt as a typed, layered, inspectable tree. Import it as `agentkit.prompts`."""

from agentkit_prompts.lazy import exports_of_stub

__getattr__, __dir__, __all__ = exports_of_stub(__name__, __file__)
