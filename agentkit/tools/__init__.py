"""What users import from `agentkit.tools`: every public name of the tools layer."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, {}, all_of=("agentkit_tools",))
