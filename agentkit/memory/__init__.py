"""What users import from `agentkit.memory`: every public name of the memory layer."""

from agentkit_memory import __all__ as __all__
from agentkit_memory import __dir__ as __dir__
from agentkit_memory import __getattr__ as __getattr__
