"""What users import from `agentkit.prompts.evaluation`."""

from agentkit_prompts.evaluation import __all__ as __all__
from agentkit_prompts.evaluation import __dir__ as __dir__
from agentkit_prompts.evaluation import __getattr__ as __getattr__
