"""Tools a model can call: made from functions, validated before they run, always ending in a result."""

from agentkit_prompts.lazy import exports_of_stub
from agentkit_tools.tool import tool as tool  # the name of the module, too: bound before anybody sees that

__getattr__, __dir__, __all__ = exports_of_stub(__name__, __file__)
