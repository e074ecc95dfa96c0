"""What users import from `agentkit.prompts.prompters`."""

from agentkit_prompts.prompters import __all__ as __all__
from agentkit_prompts.prompters import __dir__ as __dir__
from agentkit_prompts.prompters import __getattr__ as __getattr__
