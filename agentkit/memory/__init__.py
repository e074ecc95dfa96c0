"""What users import from `agentkit.memory`: every public name of the memory layer."""

import agentkit_memory
from agentkit_memory import *

__all__ = agentkit_memory.__all__
