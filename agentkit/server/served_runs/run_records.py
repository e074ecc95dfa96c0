"""`RunRecords`: where runs, their events and their journals are kept, and what a run is to its clients.

The server, the inspector and whoever else shows runs read them here. `StoredRuns` keeps them in a SQLite file, or in
memory. Everything belongs to a tenant: what another one asks for is unknown to it, as if it were not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

from agentkit.models.model import Usage
from agentkit_prompts.context.prompt_context import UserInput

__all__ = [
    "ENDED",
    "STATUSES",
    "RunEvent",
    "RunRecord",
    "RunRecords",
    "RunStatus",
    "RunsWanted",
    "WaitingCall",
    "usage_since",
    "user_input_of",
]

RunStatus: TypeAlias = Literal["queued", "running", "waiting", "finished", "failed", "cancelled"]
"""`waiting`: for decisions about tool calls. A run that a server was stopped under is `queued` again."""
STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)
ENDED: frozenset[RunStatus] = frozenset({"finished", "failed", "cancelled"})
"""Nothing more will happen in these."""


class WaitingCall(NamedTuple):
    """A tool call that waits for a decision."""

    id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it."""


class RunEvent(NamedTuple):
    """Something that happened in a run."""

    seq: int
    """From 1, ascending, unique within the run; there may be gaps. A client resumes behind the last it has seen."""
    kind: str
    """The name of the event's class in lower case, such as `text_delta`; see `event_form`."""
    data: Mapping[str, Any]
    """JSON data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run, as its clients see it."""

    id: str
    tenant: str
    agent: str
    """Name of the agent."""
    status: RunStatus
    created_at: float
    """Seconds since 1970."""
    updated_at: float
    user: str = ""
    """The user whose memory is read, within the tenant."""
    session: str | None = None
    key: str | None = None
    """Idempotency key that the client gave: unique within the tenant."""
    input: Any = None
    """What it was asked, as JSON data; None where it goes on with a session."""
    output: Any = None
    """The answer, as JSON data."""
    error: Mapping[str, Any] | None = None
    """`type` and `message` of what ended it."""
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    waiting: tuple[WaitingCall, ...] = ()
    """The calls that wait for a decision and have none yet."""
    decisions: Mapping[str, Any] = field(default_factory=dict)
    """Decisions that were made while others are missing: the id of the call, and `approve`, `reason`, `arguments`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsWanted:
    """Which runs of a tenant are listed: those that have what is not None here."""

    agent: str | None = None
    session: str | None = None
    user: str | None = None
    status: RunStatus | None = None
    before: str | None = None
    """Only those that are older than the run of this id."""
    limit: int = 50
    """Most runs to return."""


def user_input_of(record: RunRecord) -> UserInput:
    """Return what a run was asked; empty where it goes on with a session."""
    asked = record.input or {}
    return UserInput(asked.get("text", ""), additional_kwargs=asked.get("additional_kwargs", {}))


class RunRecords(Protocol):
    """Keeps runs. Methods may wait for a disk: async code calls them in threads; any number of threads may."""

    def add(self, record: RunRecord, journal: str = "") -> RunRecord:
        """Keep a new run, and its journal where it has ended already.

        Where the tenant has a run of that `key`, that one is returned and nothing is kept.
        """
        ...

    def get(self, tenant: str, run_id: str) -> RunRecord:
        """Return a run.

        Raises:
            UnknownResource: The tenant has no such run.
        """
        ...

    def find(self, tenant: str, key: str) -> RunRecord | None:
        """Return the run that a tenant began under an idempotency key, or None."""
        ...

    def put(self, record: RunRecord, *, was: RunStatus | None = None) -> bool:
        """Replace a run that is kept, by its tenant and id.

        Args:
            record: How it is now.
            was: Replace it only where it is in this status; None replaces it whatever its status is.

        Returns:
            Whether it was replaced.
        """
        ...

    def page(self, tenant: str, wanted: RunsWanted) -> Sequence[RunRecord]:
        """Return runs of a tenant, the newest first."""
        ...

    def unfinished(self) -> Sequence[RunRecord]:
        """Return the runs of all tenants that are queued or running, the oldest first."""
        ...

    def delete(self, tenant: str, run_id: str) -> None:
        """Forget a run with its events and its journal; one that is not there already is."""
        ...

    def add_events(self, tenant: str, run_id: str, events: Sequence[RunEvent]) -> None:
        """Keep events of a run, behind those it has."""
        ...

    def events(self, tenant: str, run_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[RunEvent]:
        """Return the first events of a run behind the number `after`."""
        ...

    def last_event(self, tenant: str, run_id: str) -> int:
        """Return the number of the last event of a run; 0 where it has none."""
        ...

    def add_journal(self, tenant: str, run_id: str, line: str) -> None:
        """Keep a line of the journal of a run; it is stored when this returns."""
        ...

    def journal(self, tenant: str, run_id: str) -> str:
        """Return the journal of a run, which `Journal.loads` reads; empty where nothing is kept of it yet."""
        ...

    def add_usage(self, tenant: str, day: str, usage: Usage, runs: int = 1) -> None:
        """Count what runs used; `day` is a date such as 2026-11-22, in UTC."""
        ...

    def usage(self, tenant: str, *, since: str = "") -> Mapping[str, tuple[int, Usage]]:
        """Return per day how many runs there were and what they used, from the day `since` on."""
        ...

    def close(self) -> None:
        """Close what it is kept in. Closing twice is fine."""
        ...


def usage_since(before: Usage, now: Usage) -> Usage:
    """Return what was used since then."""
    money = None if now.money is None else now.money - (before.money or 0.0)
    return Usage(
        max(0, now.input_tokens - before.input_tokens),
        max(0, now.output_tokens - before.output_tokens),
        max(0, now.cached_tokens - before.cached_tokens),
        money,
    )
