"""Agents over HTTP: OpenAI-compatible endpoints, sessions, runs. Needs the extra `server`."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.runs.run_errors": "RunStoreError",
        "agentkit.runs.run_store": "RunStore",
        "agentkit.server.access": "Access add_token",
        "agentkit.server.http_app": "Server",
        "agentkit.server.server_options": "ServerOptions",
        "agentkit.server.serving": "serve",
        "agentkit.server.variants": "Variant",
        "agentkit.server.webhooks": "Webhook",
    },
)
