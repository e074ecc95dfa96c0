"""Plain data that the store returns: messages, branches, tool calls, facts, recalls, erasures and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agentkit_prompts.context.messages import Message
from agentkit_prompts.hints import hinted

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
    """A branch of a conversation, and the message at which it was forked."""

    name: str
    parent: str | None
    fork_seq: int
    """Number of messages that the branch shares with its parent."""
    messages: int
    """Number of messages of the branch, including shared messages."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A conversation of a scope, as `Memory.sessions` lists it. Times are seconds since 1970."""

    name: str
    messages: int
    """Number of messages of the branch `main`."""
    created_at: float
    last_at: float | None
    """Time when the last message was stored; None without messages."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A tool call of a conversation."""

    seq: int
    """Number of the message with the call."""
    position: int
    """Position of the call among the calls of the message, from 0."""
    id: str
    """Id from the model. Of an id of more than 2,600 bytes, the start and a hash; the message contains the whole id."""
    name: str
    arguments: str
    """JSON as the model wrote it; `{}` after the message was redacted."""
    result_seq: int | None
    """Number of the message with the result; None without a result."""


@dataclass(frozen=True, slots=True)
class StoredFact:
    """A fact. Times are seconds since 1970."""

    id: str
    text: str
    number: int
    """Number of the fact in its scope, from 1: facts are listed in this order."""
    valid_from: float | None = None
    """Time from which the fact is recalled; None if it is not limited."""
    valid_to: float | None = None
    """Time until which the fact is recalled; None if it is not limited."""
    superseded_by: str | None = None
    """Id of the fact that replaced this fact, if any."""
    sources: tuple[str, ...] = ()
    """Ids of the items that the fact was taken from; it is deleted with any of these items."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    written_at: float = 0.0
    """Time when the fact was added or last updated."""


@hinted
@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document: an ingested file, or a document of `memory.documents.add`."""

    id: str
    source: str
    """Name of the document, the argument of `forget`."""
    chunks: int
    """Number of chunks; 1 for an image."""
    stored_at: float
    """Time when the content was last written, in seconds since 1970."""
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
    """Reason why the item was used or not."""
    slot: str = ""
    """Field of the context with the item: `documents`, `knowledge` or `conversation`; empty if it was not used."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The parts of the score, by name."""


@dataclass(frozen=True, slots=True)
class RecallLog:
    """One recall: the question, the candidates, and the reasons why each candidate was used or not."""

    query: str
    policy: Mapping[str, object]
    """Name and settings of the policy, as JSON values."""
    candidates: tuple[Candidate, ...]
    took_us: int
    conversation: str = ""
    """Name of the conversation of the recall; empty without a conversation."""
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
    unchecked: tuple[str, ...] = ()
    """Tables in the SQLite file that agentkit did not create: the scan did not read them."""

    @property
    def complete(self) -> bool:
        """True if nothing is left, in SQL and in the index."""
        return not any(self.found.values()) and self.points == 0 and not self.waiting


@dataclass(frozen=True, slots=True)
class CorruptRow:
    """A corrupt row of a table, or a row that belongs to a corrupt row."""

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
    """Items that the index should contain, or is about to remove."""
    points: int = 0
    """Points in the index."""
    pending: int = 0
    """Items that wait for a worker; this is not an error."""
    failing: int = 0
    """Pending items whose last try failed."""
    missing: int = 0
    """Items that are missing in the index, and do not wait for a worker."""
    stale: int = 0
    """Points whose version differs from SQL."""
    orphans: int = 0
    """Points and outbox rows of deleted items."""
    unfound: int = 0
    """Items of the sample that the index contains, but does not find by their own texts: its files are corrupt."""
    corrupt: int = 0
    """Corrupt rows, with the rows that belong to them."""
    corrupt_rows: tuple[CorruptRow, ...] = ()
    """The first 1,000 corrupt rows."""
    file_problems: tuple[str, ...] = ()
    """Problems of the SQLite file that `PRAGMA integrity_check` finds: restore a backup."""
    examples: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Some ids for each of the counts above, by its name."""
    problems: dict[str, str] = field(default_factory=dict)
    """Errors of some failing items, by the id of the item."""

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
    """Numbers of rows, bytes and characters that a tenant stores."""

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
    """Characters of messages, items and logs together. On disk, with the index: two to three bytes each."""
