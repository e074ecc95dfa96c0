"""`RunServices`: what the background runs of a server, and their endpoints, work with."""

from __future__ import annotations

from dataclasses import dataclass

from agentkit.runs.run_store import RunStore
from agentkit.server.served_agents import ServedAgents
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_options import ServerOptions
from agentkit.server.session_store import SessionStore

__all__ = ["RunServices"]


@dataclass(frozen=True, slots=True)
class RunServices:
    """What the background runs of a server work with."""

    agents: ServedAgents
    store: RunStore
    """Where runs are kept. A journal is kept in it line by line, so that a run is gone on with after a crash."""
    sessions: SessionStore
    """Where conversations are."""
    limits: TenantLimits
    """Counts what runs use."""
    options: ServerOptions
    """What the server allows."""
