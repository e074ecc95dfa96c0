from agentkit.inspector.inspector_routes import routes as routes
from agentkit.inspector.local_source import LocalSource as LocalSource
from agentkit.inspector.source import InspectorSource as InspectorSource
from agentkit.inspector.source import SourceOf as SourceOf
