"""The inspector: a page that shows sessions and runs as prompt trees, and what it reads.

`routes(source)` needs the extra `server`.
"""

from agentkit.inspector.inspector_routes import routes
from agentkit.inspector.source import InspectedRun, InspectorSource, RunStatus, RunSummary, SourceOf

__all__ = ["InspectedRun", "InspectorSource", "RunStatus", "RunSummary", "SourceOf", "routes"]
