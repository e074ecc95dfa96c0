"""What the store hands out: plain data about messages, branches, tool calls, facts, recalls, erasures and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentkit_prompts.context.messages import Message

__all__ = [
    "CHUNK",
    "FACT",
    "TURN",
    "BranchInfo",
    "Candidate",
    "Erasure",
    "RecallLog",
    "StoredCall",
    "StoredFact",
    "StoredMessage",
]

CHUNK, TURN, FACT = "chunk", "turn", "fact"
"""Kinds of items."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with what the store knows about it. Times are seconds since 1970."""

    seq: int
    """Its number in the conversation, from 1."""
    message: Message
    stored_at: float
    said_at: float
    """When it was said, where that is known to be another time than it was stored."""
    redacted: bool


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch of a conversation: what it is called, and where it left which other one."""

    name: str
    parent: str | None
    fork_seq: int
    """Messages it shares with its parent."""
    messages: int
    """Messages it shows, shared ones included."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A tool call of a conversation."""

    seq: int
    """Number of the message that asks for it."""
    position: int
    """Its place among the calls of that message, from 0."""
    id: str
    """The model's own; of one of more than 2,600 bytes, the beginning and a hash. The message has it as it was."""
    name: str
    arguments: str
    """JSON, as the model wrote it; `{}` once the message was redacted."""
    result_seq: int | None
    """Number of the message that answers it; None while there is none."""


@dataclass(frozen=True, slots=True)
class StoredFact:
    """Something that is held to be true. Times are seconds since 1970."""

    id: str
    text: str
    number: int
    """Its place among the facts of its scope, from 1: facts are listed in this order."""
    valid_from: float | None = None
    """Before this it is not recalled."""
    valid_to: float | None = None
    """From this on it is not recalled."""
    superseded_by: str | None = None
    """Id of the fact that took its place."""
    sources: tuple[str, ...] = ()
    """Ids of the items it was taken from; it goes when one of them goes."""
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An item that a recall looked at, without its text: the log of a recall says nothing that was erased elsewhere."""

    item: str
    kind: str
    score: float
    used: bool
    why: str
    """Why it was used or dropped."""
    slot: str = ""
    """Where it went: `documents`, `knowledge` or `conversation`; empty if it was dropped."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """What the score was made of."""


@dataclass(frozen=True, slots=True)
class RecallLog:
    """One recall: what was asked, what was looked at, and what became of it."""

    query: str
    policy: Mapping[str, object]
    """Name and settings of the policy, as JSON holds them."""
    candidates: tuple[Candidate, ...]
    took_us: int
    conversation: str = ""
    """Name of the conversation it was for, if any."""
    degraded: tuple[str, ...] = ()
    """What did not work."""
    id: int = 0
    """Its number in the store: later recalls have greater ones. 0 until it is written."""
    at: float = 0.0
    """When it was written, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """The proof that a subject was erased: what went, and what scanning for it again finds."""

    id: str
    removed: Mapping[str, int]
    """Rows that were removed, per table."""
    found: Mapping[str, int]
    """Rows of the subject that a scan of every table finds now."""
    points: int | None
    """Points of the subject that the index holds now; None if the index could not be asked."""
    waiting: int
    """Points whose removal waits for whoever owns the index."""
    compacted: bool
    """Whether the files of SQLite and of the index were rewritten, so that deleted bytes are gone from them and from
    the log. Never so on a server."""
    note: str = ""
    """What is still to be done, and how."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left, in SQL and in the index."""
        return not any(self.found.values()) and self.points == 0 and not self.waiting


@dataclass(frozen=True, slots=True)
class Verification:
    """How an index compares with what SQL holds.

    While others write, what they are about to do counts as pending.
    """

    space: str
    items: int = 0
    """Items that the space should hold or is about to forget."""
    points: int = 0
    """Points in the index."""
    pending: int = 0
    """Items that wait for a worker: nothing is wrong with them."""
    failing: int = 0
    """Of these, how many failed when they were tried."""
    missing: int = 0
    """Items that SQL says are indexed, or ought to be, and that no worker will ever index."""
    stale: int = 0
    """Points of another version than SQL says."""
    orphans: int = 0
    """Points and outbox rows of what is no longer there."""
    examples: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Some ids of each kind, by its name."""
    problems: dict[str, str] = field(default_factory=dict)
    """What was said when some of the failing ones were tried, by id."""

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, stale or orphaned."""
        return not (self.missing or self.stale or self.orphans)


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair found, and what is left."""

    before: Verification
    after: Verification
