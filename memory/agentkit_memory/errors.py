"""Errors of the memory layer. Each message contains the failure, the place, the expected value and advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from agentkit_prompts.errors import Picklable, Place


class StoreError(Picklable):
    """Base of every error of the memory layer."""


class InvalidArgument(StoreError, ValueError):
    """An argument is invalid: a name, a scope, a path, a message, a fact, a question, a part of a policy, a gate.

    An extractor also raises it if the answer of its model contains no valid draft of a fact.
    """

    @classmethod
    def listing(cls, where: str, problems: Sequence[str]) -> InvalidArgument:
        """Return one error for several problems, each starting with the name of its argument: `limit: expected ...`."""
        names = [problem.partition(":")[0] for problem in problems]
        return cls(
            f"{where}: {'; '.join(problems)}",
            name=", ".join(dict.fromkeys(names)),
            problems=list(zip(names, problems, strict=True)),
        )


class StoreUnavailable(StoreError):
    """The database cannot be opened, read or written now: it is not reachable, read-only, on a full disk, or locked by
    other processes for longer than the timeout.

    Nothing was written, and stored data is intact, with one exception: if the connection to a server is lost at the end
    of a write that cannot be repeated, the write may have happened. The message reports this.
    """


class StoreCorrupt(StoreError):
    """The file is not a database; or the file, a row or a note is corrupt, or of a newer version of agentkit.

    Nothing was changed. `admin.verify` names corrupt rows, and `admin.repair` moves them to a file.

    Attributes:
        table: Table of the corrupt row; empty if the error is not about a row.
        row: Key of the corrupt row: the number of a message, the name of a note, the id of any other row.
    """

    def __init__(self, problem: str, *, table: str = "", row: str = "", **place: Unpack[Place]) -> None:
        super().__init__(problem, **place)
        self.table = table
        self.row = row


class StoreVersion(StoreCorrupt):
    """A database, message or backup of a newer version of agentkit, or an export of another version."""


class StoreClosed(StoreError):
    """The memory was closed, was opened before this process was forked, or its model was changed during the call."""


class HeadMoved(StoreError):
    """Another writer extended or rewound the conversation first. Nothing was written; the session has read the change.

    Attributes:
        expected: Number of messages that the session had read before.
        actual: Number of messages of the conversation now.
        rewound: True if some messages that the session had read were removed from the conversation.
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
        """Return the error of a key that was used for other messages, which start with message number `first`."""
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
        owned: True if another process owns the index, and will index the queued items.
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
    """A file cannot be ingested, or paths or options are invalid. An invalid file does not stop the other files.

    Attributes:
        source: The path of the file, or the name of the argument.
    """

    def __init__(self, source: str, problem: str, **place: Unpack[Place]) -> None:
        super().__init__(f"{source}: {problem}", **place)
        self.source = source


class WouldWait(Exception):
    """Internal signal of a write that would have to wait for a lock, a disk or a server. Nothing was written."""
