"""`ServerOptions`: what one server allows."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit_prompts.options import Count, PositiveNumber, options

__all__ = ["ServerOptions"]


_ELSEWHERE = {
    "max_body": "body_bytes",
    "timeout": "run_seconds",
    "cors": "cors_origins",
    "rate_limit": "requests_per_minute",
}
"""Names of the options in other libraries."""


def _origin(text: str) -> str:
    if "://" not in text:
        raise ValueError("expected an origin such as https://chat.example.com")
    return text


@options(AgentDefinitionError, unknown=UnknownOption, elsewhere=_ELSEWHERE, kw_only=True)
class ServerOptions:
    """What one server allows. Seconds are wall time.

    Raises:
        AgentDefinitionError: Names every value that is out of range.
    """

    body_bytes: Count = 4 << 20
    """Longest body of a request, in bytes; media are part of it, as base64."""
    body_seconds: PositiveNumber = 30.0
    """Until a whole body must have arrived."""
    header_seconds: PositiveNumber = 10.0
    """Until the headers of a request must have arrived."""
    write_seconds: PositiveNumber = 30.0
    """How long a client may take none of an answer that is streamed: then its connection is closed."""
    idle_seconds: PositiveNumber = 15.0
    """Between requests on one connection; and between two signs of life on a stream where nothing happens."""
    run_seconds: PositiveNumber = 600.0
    """Longest run, where the limits of its agent allow as much."""
    concurrent: Count = 512
    """Requests of all tenants at once that run agents."""
    concurrent_per_tenant: Count = 256
    """Requests of one tenant at once that run agents, unless the access file says otherwise."""
    requests_per_minute: PositiveNumber = 6000.0
    """Requests of one tenant, unless the access file says otherwise. A second's share may come at once."""
    background_runs: Count = 64
    """Runs at once that were started by `POST /runs`; others wait in their order."""
    runs_per_tenant: Count = 256
    """Runs of one tenant that have not ended, those that wait for room among them."""
    queued_runs: Count = 1000
    """Runs of all tenants that may wait; more are refused."""
    grace_seconds: PositiveNumber = 20.0
    """What goes on when the server is stopped has so long to end; then runs are kept to be gone on with."""
    cors_origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = ()
    """Origins of web pages that may call the server, such as https://chat.example.com; none by default."""
    sessions_in_memory: Count = 10_000
    """Conversations that are kept where there is no store; more are refused."""
    held_replies: Count = 10_000
    """Replies of the OpenAI-compatible endpoints whose tools ran here, kept until the client answers its own calls."""
