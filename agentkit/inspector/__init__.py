"""The inspector: a page that shows sessions and runs as prompt trees, with its routes and JSON data.

`routes(source)` requires the extra `server`.
"""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.inspector.inspector_routes": "routes",
        "agentkit.inspector.local_source": "LocalSource",
        "agentkit.inspector.source": "InspectorSource SourceOf",
    },
)
