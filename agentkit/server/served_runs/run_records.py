"""`RunRecord`: what a run is to its clients, and what it had to report to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from agentkit.models.model import Usage
from agentkit_prompts.context.prompt_context import UserInput

__all__ = [
    "ENDED",
    "STATUSES",
    "RunEvent",
    "RunRecord",
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
    citations: Sequence[Mapping[str, Any]] = ()
    """The documents that the answer names by their labels; see `citation_form`."""
    unknown_labels: Sequence[str] = ()
    """What looks like a label in the answer, and is that of no document that was sent."""
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
    ids: Collection[str] | None = None
    """Only those of these ids."""
    limit: int = 50
    """Most runs to return."""


def user_input_of(record: RunRecord) -> UserInput:
    """Return what a run was asked; empty where it goes on with a session."""
    asked = record.input or {}
    return UserInput(asked.get("text", ""), additional_kwargs=asked.get("additional_kwargs", {}))


def usage_since(before: Usage, now: Usage) -> Usage:
    """Return what was used since then."""
    money = None if now.money is None else now.money - (before.money or 0.0)
    return Usage(
        max(0, now.input_tokens - before.input_tokens),
        max(0, now.output_tokens - before.output_tokens),
        max(0, now.cached_tokens - before.cached_tokens),
        money,
    )
