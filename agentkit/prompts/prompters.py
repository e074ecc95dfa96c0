"""Public names of prompters."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, {}, all_of=("agentkit_prompts.prompters",))
