"""Plain data that the store returns: messages, branches, tool calls, facts, recalls, erasures and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentkit_prompts.context.messages import Message

__all__ = [
    "CHUNK",
    "FACT",
    "IMAGE",
    "TURN",
    "BranchInfo",
    "Candidate",
    "CorruptRow",
    "Erasure",
    "RecallLog",
    "Repair",
    "SessionInfo",
    "StoredCall",
    "StoredDocument",
    "StoredFact",
    "StoredMessage",
    "Usage",
    "Verification",
]

CHUNK, IMAGE, TURN, FACT = "chunk", "image", "turn", "fact"
"""Kinds of items. The text of an image is its alt text."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A stored message. Times are seconds since 1970."""

    seq: int
    """Its number in the conversation, from 1."""
    message: Message
    stored_at: float
    said_at: float
    """`stored_at` unless another time was given."""
    redacted: bool


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch of a conversation: its name, and where it was forked from which other one."""

    name: str
    parent: str | None
    fork_seq: int
    """Messages it shares with its parent."""
    messages: int
    """How many it has, shared ones included."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A conversation of a scope, as `Memory.sessions` lists it. Times are seconds since 1970."""

    name: str
    messages: int
    """Of its branch `main`."""
    created_at: float
    last_at: float | None
    """When its last message was stored; None where it has none."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A tool call of a conversation."""

    seq: int
    """Number of the message that asks for it."""
    position: int
    """Its place among the calls of that message, from 0."""
    id: str
    """From the model; above 2,600 bytes, its beginning and a hash (the message keeps it whole)."""
    name: str
    arguments: str
    """JSON, as the model wrote it; `{}` once the message was redacted."""
    result_seq: int | None
    """Number of the message with its result, if any."""


@dataclass(frozen=True, slots=True)
class StoredFact:
    """A fact. Times are seconds since 1970."""

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
    """Ids of the items it was taken from; it is deleted with any of them."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    written_at: float = 0.0
    """When it was added or last updated. `valid_from` and `valid_to` are the time it holds."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document: a file that was ingested, or what was given to `memory.documents.add`."""

    id: str
    source: str
    """Its name, which `forget` takes."""
    chunks: int
    """How many chunks it has; 1 if it is an image."""
    stored_at: float
    """When its content was last written, in seconds since 1970."""
    is_file: bool
    """Whether it was ingested from a file."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    """As it was given; its chunks have it too."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An item that a recall considered, without its text: what is erased elsewhere is not left in a log."""

    item: str
    kind: str
    score: float
    used: bool
    why: str
    """Why it was used or not."""
    slot: str = ""
    """Where in a context it was used: `documents`, `knowledge` or `conversation`; empty if it was not."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The parts of the score, by name."""


@dataclass(frozen=True, slots=True)
class RecallLog:
    """One recall: its question, its candidates, and why each was used or not."""

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
    """Grows from recall to recall; 0 until it is written."""
    at: float = 0.0
    """Time of the recall in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """The proof that a subject was erased: what was removed, and what a new scan finds."""

    id: str
    removed: Mapping[str, int]
    """Rows that were removed, per table."""
    found: Mapping[str, int]
    """Rows of the subject that a scan of every table finds now."""
    points: int | None
    """Points of the subject that the index holds now; None if the index could not be asked."""
    waiting: int
    """Points whose removal waits for the owner of the index."""
    compacted: bool
    """Whether no deleted byte of it is left in the files of SQLite and of the index. False on a server."""
    note: str = ""
    """What is still to be done, and how."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left, in SQL and in the index."""
        return not any(self.found.values()) and self.points == 0 and not self.waiting


@dataclass(frozen=True, slots=True)
class CorruptRow:
    """A damaged row of a table, or a row that belongs to one."""

    table: str
    row: str
    """Its key."""
    column: str
    problem: str
    """What the column contains instead of a valid value."""


@dataclass(frozen=True, slots=True)
class Verification:
    """How an index compares with what SQL holds, and what is damaged in SQL.

    Writes of others during the comparison count as pending.
    """

    space: str
    items: int = 0
    """Items that the space should hold or is about to remove."""
    points: int = 0
    """Points in the index."""
    pending: int = 0
    """Items that wait for a worker; this is not an error."""
    failing: int = 0
    """Those of the pending ones that failed when they were tried."""
    missing: int = 0
    """Items that should be in the index, are not, and wait for no worker."""
    stale: int = 0
    """Points of another version than in SQL."""
    orphans: int = 0
    """Points and outbox rows of deleted items."""
    unfound: int = 0
    """Items of the sample that the index holds and does not find by their own texts: its files are damaged."""
    corrupt: int = 0
    """Damaged rows, with the rows that belong to them."""
    corrupt_rows: tuple[CorruptRow, ...] = ()
    """The first 1,000 of these rows."""
    file_problems: tuple[str, ...] = ()
    """Problems of the SQLite file that `PRAGMA integrity_check` finds: restore a backup."""
    examples: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Some ids of each kind, by its name."""
    problems: dict[str, str] = field(default_factory=dict)
    """Errors of some of the failing ones, by id."""

    @property
    def ok(self) -> bool:
        """True if nothing is missing, stale, orphaned, unfound or damaged."""
        index = self.missing or self.stale or self.orphans or self.unfound
        return not (index or self.corrupt or self.file_problems)


@dataclass(frozen=True, slots=True)
class Repair:
    """The comparison before a repair and the one after."""

    before: Verification
    after: Verification
    removed: int = 0
    """Damaged rows that were moved to a file, with the facts that were taken from them."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tenant stores."""

    tenant: str
    users: int
    """Users that something was stored for."""
    conversations: int
    messages: int
    documents: int
    chunks: int
    turns: int
    """Messages that can be recalled."""
    facts: int
    recall_logs: int
    image_bytes: int
    characters: int
    """Of messages, items and logs together. On disk it is two to three times as much, with the index."""
