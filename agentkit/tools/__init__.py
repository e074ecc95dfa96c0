"""What users import from `agentkit.tools`: every public name of the tools layer."""

from agentkit_tools import *
from agentkit_tools import __all__ as __all__
