"""Messages to a run while it runs."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.run.engine.events": "MessageReceived",
        "agentkit.run.engine.run_stream": "RunStream SyncRunStream",
        "agentkit.run.parts.run_inbox": "Inbox SentMessage",
    },
)
