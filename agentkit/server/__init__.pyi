from agentkit.runs.run_errors import RunStoreError as RunStoreError
from agentkit.runs.run_store import RunStore as RunStore
from agentkit.server.access import Access as Access
from agentkit.server.access import add_token as add_token
from agentkit.server.http_app import Server as Server
from agentkit.server.server_options import ServerOptions as ServerOptions
from agentkit.server.serving import serve as serve
from agentkit.server.webhooks import Webhook as Webhook
