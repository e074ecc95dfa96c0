"""`ServerOptions`: what one server allows."""

from __future__ import annotations

from dataclasses import dataclass, fields

from agentkit.errors import AgentDefinitionError, named_problems
from agentkit.ground.unknown_options import refusing_unknown
from agentkit_prompts.errors import brief

__all__ = ["ServerOptions"]


@refusing_unknown(max_body="body_bytes", timeout="run_seconds", cors="cors_origins", rate_limit="requests_per_minute")
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What one server allows. Seconds are wall time.

    Raises:
        AgentDefinitionError: Names every value that is out of range.
    """

    body_bytes: int = 4 << 20
    """Longest body of a request, in bytes; media are part of it, as base64."""
    body_seconds: float = 30.0
    """Until a whole body must have arrived."""
    header_seconds: float = 10.0
    """Until the headers of a request must have arrived."""
    write_seconds: float = 30.0
    """How long a client may take none of an answer that is streamed: then its connection is closed."""
    idle_seconds: float = 15.0
    """Between requests on one connection; and between two signs of life on a stream where nothing happens."""
    run_seconds: float = 600.0
    """Longest run, where the limits of its agent allow as much."""
    concurrent: int = 512
    """Requests of all tenants at once that run agents."""
    concurrent_per_tenant: int = 256
    """Requests of one tenant at once that run agents, unless the access file says otherwise."""
    requests_per_minute: int = 6000
    """Requests of one tenant, unless the access file says otherwise. A second's share may come at once."""
    background_runs: int = 64
    """Runs at once that were started by `POST /runs`; others wait in their order."""
    runs_per_tenant: int = 256
    """Runs of one tenant that have not ended, those that wait for room among them."""
    queued_runs: int = 1000
    """Runs of all tenants that may wait; more are refused."""
    grace_seconds: float = 20.0
    """What goes on when the server is stopped has so long to end; then runs are kept to be gone on with."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may call the server, such as https://chat.example.com; none by default."""
    sessions_in_memory: int = 10_000
    """Conversations that are kept where there is no store; more are refused."""
    held_replies: int = 10_000
    """Replies of the OpenAI-compatible endpoints whose tools ran here, kept until the client answers its own calls."""

    def __post_init__(self) -> None:
        wrong = []
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name == "cors_origins":
                if not isinstance(value, tuple) or not all(isinstance(item, str) and "://" in item for item in value):
                    wrong.append("cors_origins: expected a tuple of origins such as https://chat.example.com")
            elif isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                wrong.append(f"{one.name}={brief(value, 40)} must be above 0")
        if wrong:
            raise AgentDefinitionError(f"server: {'; '.join(wrong)}", **named_problems(wrong))
