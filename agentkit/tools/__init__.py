"""What users import from `agentkit.tools`: every public name of the tools layer."""

from agentkit_tools import __all__ as __all__
from agentkit_tools import __dir__ as __dir__
from agentkit_tools import __getattr__ as __getattr__
