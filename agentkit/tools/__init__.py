"""What users import from `agentkit.tools`: every public name of the tools layer."""

import agentkit_tools
from agentkit_tools import *

__all__ = agentkit_tools.__all__
