"""What users import from `agentkit.prompts`: every public name of the prompts layer."""

import agentkit_prompts
from agentkit_prompts import *

__all__ = agentkit_prompts.__all__
