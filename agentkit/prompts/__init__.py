"""What users import from `agentkit.prompts`: every public name of the prompts layer."""

from agentkit_prompts import __all__ as __all__
from agentkit_prompts import __dir__ as __dir__
from agentkit_prompts import __getattr__ as __getattr__
