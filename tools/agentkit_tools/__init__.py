"""Tools a model can call: made from functions, validated before they run, always ending in a result."""

from agentkit_prompts.lazy import exports_of_stub

# `tool` is a module, too. Bind the function before `import agentkit_tools.tool` can set the module here.
from agentkit_tools.tool import tool as tool

__getattr__, __dir__, __all__ = exports_of_stub(__name__, __file__)
