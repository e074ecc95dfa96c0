"""What users import from `agentkit.memory`: every public name of the memory layer."""

from agentkit_memory import *
from agentkit_memory import __all__ as __all__
