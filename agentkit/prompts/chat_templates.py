"""Public names for chat templates."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, {}, all_of=("agentkit_prompts.chat_templates",))
