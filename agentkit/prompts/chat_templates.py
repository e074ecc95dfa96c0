"""What users import from `agentkit.prompts.chat_templates`."""

from agentkit_prompts.chat_templates import __all__ as __all__
from agentkit_prompts.chat_templates import __dir__ as __dir__
from agentkit_prompts.chat_templates import __getattr__ as __getattr__
