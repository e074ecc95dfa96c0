"""`ServerOptions`: limits of a server."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.runs.run_retention import Retention
from agentkit_prompts.options import Count, PositiveNumber, options

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
    """Limits of a server. Seconds are wall time.

    Raises:
        AgentDefinitionError: A value is out of range. The message lists all of them.
    """

    body_bytes: Count = 4 << 20
    """Maximum bytes of a request body, including media as base64."""
    body_seconds: PositiveNumber = 30.0
    """Maximum seconds until the whole body of a request has arrived."""
    header_seconds: PositiveNumber = 10.0
    """Maximum seconds until the headers of a request have arrived."""
    write_seconds: PositiveNumber = 30.0
    """Maximum seconds in which a client reads nothing of a response; then the connection is closed."""
    idle_seconds: PositiveNumber = 15.0
    """Maximum seconds between two requests of a connection, and between two heartbeats of an idle stream."""
    run_seconds: PositiveNumber = 600.0
    """Maximum seconds of a run; the limits of the agent may be shorter."""
    connections: Count = 4096
    """Maximum open connections; a new connection replaces the oldest idle one. Never more than half of the open files
    that the process may have."""
    connections_per_address: Count = 2048
    """Maximum open connections of an address, or of a network of 64 bits of IPv6; a proxy is one address. Never more
    than three quarters of the total."""
    concurrent: Count = 512
    """Maximum concurrent requests of all tenants that run agents."""
    concurrent_per_tenant: Count = 256
    """Maximum concurrent requests of a tenant that run agents; the access file may override it."""
    requests_per_minute: PositiveNumber = 6000.0
    """Maximum requests per minute of a tenant; the access file may override it."""
    background_runs: Count = 64
    """Maximum concurrent runs of `POST /runs`; further runs are queued. A free place goes to the tenant with the fewest
    running runs."""
    background_per_tenant: Count | None = None
    """Maximum concurrent runs of `POST /runs` of a tenant; None: three quarters of `background_runs`, or all without an
    access file, which makes all callers one tenant."""
    runs_per_tenant: Count = 256
    """Maximum unfinished runs of a tenant, including queued runs."""
    queued_runs: Count = 1000
    """Maximum queued runs of all tenants."""
    grace_seconds: PositiveNumber = 20.0
    """Seconds to finish requests on shutdown; unfinished runs are stored for the next server."""
    cors_origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = ()
    """Origins of web pages that may call the server, such as https://chat.example.com."""
    sessions_in_memory: Count = 10_000
    """Maximum number of sessions of a tenant in a server without a store."""
    held_replies: Count = 10_000
    """Maximum number of replies that wait for tool results of a client of the OpenAI-compatible endpoints; above the
    maximum, the tenant with the most text loses its oldest reply."""
    kept_runs: Count = 5_000
    """Maximum number of stored runs of a tenant that have ended; the oldest are deleted first."""
    kept_characters: Count = 1_000_000_000
    """Maximum characters of the stored journals of a tenant. Without a store, 256,000,000 for all tenants together."""
    kept_seconds: PositiveNumber | None = None
    """Maximum age of a stored run since its end; None for no limit."""
    key_seconds: PositiveNumber = 86_400.0
    """Minimum seconds for which a run with an `Idempotency-Key` is stored, whatever the other limits are."""
    kept_keys: Count = 100_000
    """Maximum number of idempotency keys of a tenant within `key_seconds`; further requests with a key are refused."""

    @property
    def retention(self) -> Retention:
        """Limits of the stored runs of a tenant."""
        return Retention(self.kept_runs, self.kept_characters, self.kept_seconds, self.key_seconds)

    def places_per_tenant(self, *, is_shared: bool) -> int:
        """Return the maximum concurrent background runs of a tenant; `is_shared`: several tenants use the server."""
        if self.background_per_tenant is not None:
            return self.background_per_tenant
        if not is_shared:
            return self.background_runs
        return max(1, self.background_runs * 3 // 4)
