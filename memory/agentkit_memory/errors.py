"""Errors of the memory layer. Each message contains the failure, the place, the expected value and advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from agentkit_prompts.errors import Picklable, Place

__all__ = [
    "AlreadyUsed",
    "EmbedderError",
    "EmbedderUnavailable",
    "HeadMoved",
    "IndexBroken",
    "IndexUnavailable",
    "IngestError",
    "InvalidArgument",
    "NotFound",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "StoreVersion",
    "WouldWait",
]


class StoreError(Picklable):
    """Base of every error of the memory layer."""


class InvalidArgument(StoreError, ValueError):
    """An argument is invalid: a name, a scope, a path, a message, a fact, a question, a part of a policy, a gate.

    An extractor raises it for an answer of its model without valid drafts.
    """

    @classmethod
    def listing(cls, where: str, problems: Sequence[str]) -> InvalidArgument:
        """Return the error of several problems that start with a name: `limit: expected ...`."""
        names = [problem.partition(":")[0] for problem in problems]
        return cls(
            f"{where}: {'; '.join(problems)}",
            name=", ".join(dict.fromkeys(names)),
            problems=list(zip(names, problems, strict=True)),
        )


class StoreUnavailable(StoreError):
    """The database cannot be opened, read or written now: it is not available, locked by other processes for longer
    than the timeout, read-only, or on a full disk. Nothing was written, and stored data is intact. Only if the
    connection to a server was lost at the end of a write that cannot be repeated, it may have been written, as the
    message reports.
    """


class StoreCorrupt(StoreError):
    """The file is not a database; or the file, a row or a note is corrupt, or of a newer version of agentkit.

    It is left as it is. `admin.verify` names corrupt rows, and `admin.repair` moves them to a file.

    Attributes:
        table: Table of the corrupt row; empty if the error is not about a row.
        row: Key of the corrupt row: the number of a message, the name of a note, the id of another row.
    """

    def __init__(self, problem: str, *, table: str = "", row: str = "", **place: Unpack[Place]) -> None:
        super().__init__(problem, **place)
        self.table = table
        self.row = row


class StoreVersion(StoreCorrupt):
    """The database, or a message in it, was written by a newer version of agentkit, which can read it."""


class StoreClosed(StoreError):
    """The memory was closed, or was opened before this process was forked."""


class HeadMoved(StoreError):
    """Another writer extended or rewound the conversation first. Nothing was written, the view is up to date again.

    Attributes:
        expected: Number of messages of the view.
        actual: Number of messages of the conversation now.
        rewound: True if it was rewound: some messages of the view are no longer part of it.
    """

    def __init__(self, session: str, expected: int, actual: int, rewound: bool = False) -> None:
        change = f"added {actual - expected} message(s) after message {expected}"
        if rewound:
            change = f"rewound it, and it has {actual} message(s)"
        super().__init__(
            f"conversation {session!r}: another writer {change}; they are in `session.conversation` now: look at them, "
            "then append again"
        )
        self.name = session
        self.expected = expected
        self.actual = actual
        self.rewound = rewound


class AlreadyUsed(StoreError):
    """An idempotency key was used for other messages, or the name of a branch exists already. Nothing was written."""

    @classmethod
    def of_key(cls, session: str, key: str, first: int) -> AlreadyUsed:
        """Return the error of a key that was used for other messages, `first` the number of the first of them."""
        return cls(
            f"conversation {session!r}: key {key!r} was used for other messages (message {first} on); "
            "give every append a unique key",
            name=key,
            value=first,
        )


class NotFound(StoreError):
    """The object is not stored in this scope, or was deleted."""


class IndexUnavailable(StoreError):
    """Another process owns the index, its disk is full, or its server is not available, slow or failing.

    Writes are queued in the database.

    Attributes:
        owned: True if another process owns it, and will index the queued items.
    """

    def __init__(self, problem: str, *, owned: bool = False, **place: Unpack[Place]) -> None:
        super().__init__(problem, **place)
        self.owned = owned


class IndexBroken(StoreError):
    """The vector index failed. The database is intact, and the index can be rebuilt from it."""


class EmbedderError(StoreError):
    """An embedder failed, did not return one finite vector per text, or is not the embedder of the store."""


class EmbedderUnavailable(EmbedderError):
    """The embedding model is not installed, not on this machine, not reachable, slow or failing. BM25 still works."""


class IngestError(StoreError):
    """A file cannot be ingested, which does not stop the ingestion of other files; or paths or options are invalid.

    Attributes:
        source: The path of the file, or the name of the argument.
    """

    def __init__(self, source: str, problem: str, **place: Unpack[Place]) -> None:
        super().__init__(f"{source}: {problem}", **place)
        self.source = source


class WouldWait(Exception):
    """Internal: nothing was written, as the write would have to wait for a lock, a disk or a server."""
