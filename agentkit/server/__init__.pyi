from agentkit.server.access import Access as Access
from agentkit.server.access import add_token as add_token
from agentkit.server.http_app import Server as Server
from agentkit.server.served_runs.stored_runs import StoredRuns as StoredRuns
from agentkit.server.served_runs.stored_runs import StoredRunsError as StoredRunsError
from agentkit.server.server_options import ServerOptions as ServerOptions
from agentkit.server.serving import serve as serve
