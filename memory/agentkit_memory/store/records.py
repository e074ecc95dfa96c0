"""Plain data that the store returns: messages, branches, tool calls, facts, recalls, erasures and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentkit_prompts.context.messages import Message
from agentkit_prompts.hints import hinted

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
    """Number of the message in the conversation, from 1."""
    message: Message
    stored_at: float
    said_at: float
    """Time of the message; by default `stored_at`."""
    redacted: bool


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch of a conversation, and the place where it was forked."""

    name: str
    parent: str | None
    fork_seq: int
    """Number of messages that it shares with its parent."""
    messages: int
    """Number of its messages, including shared messages."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A conversation of a scope, as `Memory.sessions` lists it. Times are seconds since 1970."""

    name: str
    messages: int
    """Number of messages of its branch `main`."""
    created_at: float
    last_at: float | None
    """Time when its last message was stored; None without messages."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A tool call of a conversation."""

    seq: int
    """Number of the message that requests it."""
    position: int
    """Its position among the calls of that message, from 0."""
    id: str
    """Id from the model; above 2,600 bytes, its start and a hash (the message contains the whole id)."""
    name: str
    arguments: str
    """JSON as the model wrote it; `{}` after the message was redacted."""
    result_seq: int | None
    """Number of the message with its result, if any."""


@dataclass(frozen=True, slots=True)
class StoredFact:
    """A fact. Times are seconds since 1970."""

    id: str
    text: str
    number: int
    """Number of the fact in its scope, from 1: facts are listed in this order."""
    valid_from: float | None = None
    """Start of the time in which it is recalled."""
    valid_to: float | None = None
    """End of the time in which it is recalled."""
    superseded_by: str | None = None
    """Id of the fact that replaced it."""
    sources: tuple[str, ...] = ()
    """Ids of the items it was taken from; it is deleted with any of them."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    written_at: float = 0.0
    """Time when it was added or last updated. `valid_from` and `valid_to` are the time in which it is true."""


@hinted
@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document: an ingested file, or a document of `memory.documents.add`."""

    id: str
    source: str
    """Name of the document, the argument of `forget`."""
    chunks: int
    """Number of its chunks; 1 if it is an image."""
    stored_at: float
    """Time when its content was last written, in seconds since 1970."""
    is_file: bool
    """True if it was ingested from a file."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    """Metadata of the document; its chunks have it too."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An item that a recall considered, without its text, so that no erased text is left in a log."""

    item: str
    kind: str
    score: float
    used: bool
    why: str
    """Reason why it was used or not."""
    slot: str = ""
    """Part of the context with it: `documents`, `knowledge` or `conversation`; empty if it was not used."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The parts of the score, by name."""


@dataclass(frozen=True, slots=True)
class RecallLog:
    """One recall: its question, its candidates, and the reasons why each was used or not."""

    query: str
    policy: Mapping[str, object]
    """Name and settings of the policy, as JSON values."""
    candidates: tuple[Candidate, ...]
    took_us: int
    conversation: str = ""
    """Name of the conversation it was for, if any."""
    degraded: tuple[str, ...] = ()
    """Problems of the recall."""
    id: int = 0
    """Number of the log, which grows with every recall; 0 until it is written."""
    at: float = 0.0
    """Time of the recall in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """The proof of an erasure: the rows that were removed, and the rows that a new scan finds."""

    id: str
    removed: Mapping[str, int]
    """Number of rows that were removed, per table."""
    found: Mapping[str, int]
    """Number of rows of the subject that a scan of every table finds now."""
    points: int | None
    """Points of the subject that the index contains now; None if the index could not be read."""
    waiting: int
    """Points whose removal waits for the owner of the index."""
    compacted: bool
    """True if no deleted byte is left in the files of SQLite and of the index. False on a server."""
    note: str = ""
    """Remaining work, and how to do it."""

    @property
    def complete(self) -> bool:
        """True if nothing is left, in SQL and in the index."""
        return not any(self.found.values()) and self.points == 0 and not self.waiting


@dataclass(frozen=True, slots=True)
class CorruptRow:
    """A corrupt row of a table, or a row that belongs to one."""

    table: str
    row: str
    """Key of the row."""
    column: str
    problem: str
    """Problem of the value in the column."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a comparison of an index with SQL, and of a search for corrupt rows.

    Writes of other processes during the comparison count as pending.
    """

    space: str
    items: int = 0
    """Items that the space should contain or is about to remove."""
    points: int = 0
    """Points in the index."""
    pending: int = 0
    """Items that wait for a worker; this is not an error."""
    failing: int = 0
    """Pending items whose last try failed."""
    missing: int = 0
    """Items that are missing in the index, and do not wait for a worker."""
    stale: int = 0
    """Points of another version than in SQL."""
    orphans: int = 0
    """Points and outbox rows of deleted items."""
    unfound: int = 0
    """Items of the sample that the index contains but does not find by their own texts: its files are corrupt."""
    corrupt: int = 0
    """Corrupt rows, with the rows that belong to them."""
    corrupt_rows: tuple[CorruptRow, ...] = ()
    """The first 1,000 of these rows."""
    file_problems: tuple[str, ...] = ()
    """Problems of the SQLite file that `PRAGMA integrity_check` finds: restore a backup."""
    examples: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Some ids of each kind, by its name."""
    problems: dict[str, str] = field(default_factory=dict)
    """Errors of some failing items, by id."""

    @property
    def ok(self) -> bool:
        """True if nothing is missing, stale, orphaned, unfound or corrupt."""
        index = self.missing or self.stale or self.orphans or self.unfound
        return not (index or self.corrupt or self.file_problems)


@dataclass(frozen=True, slots=True)
class Repair:
    """The comparisons before and after a repair."""

    before: Verification
    after: Verification
    removed: int = 0
    """Corrupt rows that were moved to a file, with the facts that were taken from them."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Number of rows and bytes that a tenant stores."""

    tenant: str
    users: int
    """Users with stored data."""
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
    """Characters of messages, items and logs together. On disk, with the index, they take two to three times as much.
    """
