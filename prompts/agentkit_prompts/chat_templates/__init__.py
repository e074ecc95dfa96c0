"""Chat templates: the text of a conversation for one local model. Import it as `agentkit.prompts.chat_templates`."""

from agentkit_prompts.lazy import exports_of_stub

__getattr__, __dir__, __all__ = exports_of_stub(__name__, __file__)
