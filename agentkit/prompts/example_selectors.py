"""What users import from `agentkit.prompts.example_selectors`."""

from agentkit_prompts.lazy import exports_of_stub

__getattr__, __dir__, __all__ = exports_of_stub(__name__, __file__)
