"""The inspector: a page that shows sessions and runs as prompt trees, and what the page reads.

`routes(source)` needs the extra `server`.
"""

from agentkit_prompts.lazy import exports_of_stub

__getattr__, __dir__, __all__ = exports_of_stub(__name__, __file__)
