"""What users import from `agentkit.prompts`: every public name of the prompts layer."""

from agentkit_prompts import *
from agentkit_prompts import __all__ as __all__
