"""The inspector: a page that shows sessions and runs as prompt trees, and what the page reads.

`routes(source)` needs the extra `server`.
"""

from agentkit.inspector.inspector_routes import routes
from agentkit.inspector.local_source import LocalSource
from agentkit.inspector.source import InspectedRun, InspectorSource, RunStatus, RunSummary, SourceOf

__all__ = ["InspectedRun", "InspectorSource", "LocalSource", "RunStatus", "RunSummary", "SourceOf", "routes"]
