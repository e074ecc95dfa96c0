"""Errors of the memory layer. Each message names what failed, where, what was expected and what to do about it."""

from __future__ import annotations

from agentkit_prompts.errors import Picklable

__all__ = [
    "EmbedderError",
    "EmbedderMismatch",
    "EmbedderUnavailable",
    "ExtractionError",
    "FactError",
    "HeadMoved",
    "IndexBroken",
    "IndexBusy",
    "IndexUnavailable",
    "IngestError",
    "KeyReused",
    "MessageUnreadable",
    "NameTaken",
    "NotFound",
    "RecallError",
    "ReembedError",
    "ScopeError",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreReadOnly",
    "StoreUnavailable",
    "StoreVersion",
    "WouldWait",
]


class StoreError(Picklable):
    """Base of every error of the memory layer."""


class StoreUnavailable(StoreError):
    """The database cannot be opened or reached."""


class StoreLocked(StoreError):
    """Another process kept the database locked for longer than the timeout. Nothing was written."""


class StoreReadOnly(StoreError):
    """The database file, its folder or its server does not accept writes. Nothing was written."""


class StoreFull(StoreError):
    """The disk is full or failing. The transaction was rolled back; what was stored before is intact."""


class StoreCorrupt(StoreError):
    """The file is not a database, or is damaged. It is left as it is."""


class StoreVersion(StoreError):
    """The database, or a message in it, was written by a newer version of agentkit."""


class StoreClosed(StoreError):
    """The memory was closed, or was opened before this process was forked."""


class ScopeError(StoreError, ValueError):
    """A scope without a tenant, or a name that no database can hold."""


class HeadMoved(StoreError):
    """Another writer extended or rewound the conversation first. Nothing was written, the view is up to date again.

    Attributes:
        expected: Messages the view held.
        actual: Messages the conversation holds now.
        rewound: Whether it was rewound: some messages of the view are no longer part of it.
    """

    def __init__(self, session: str, expected: int, actual: int, rewound: bool = False) -> None:
        done = f"added {actual - expected} message(s) after message {expected}"
        if rewound:
            done = f"rewound it, and it has {actual} message(s)"
        super().__init__(
            f"conversation {session!r}: another writer {done}; they are in `session.conversation` now: look at them, "
            "then append again"
        )
        self.expected = expected
        self.actual = actual
        self.rewound = rewound


class KeyReused(StoreError):
    """An idempotency key was used before, for other messages. Nothing was added."""

    def __init__(self, session: str, key: str, first: int) -> None:
        super().__init__(
            f"conversation {session!r}: key {key!r} was used for other messages (message {first} on); "
            "give every append a key of its own"
        )


class NameTaken(StoreError):
    """The conversation has another branch of that name."""


class NotFound(StoreError):
    """It is not stored in this scope, or was deleted."""


class FactError(StoreError, ValueError):
    """A fact without text, that cannot be stored, or that ends before it begins."""


class ExtractionError(StoreError):
    """An extractor that is not callable, or an answer without valid drafts: the turns are read again then."""


class MessageUnreadable(StoreError):
    """A value that is not a message or cannot be written as UTF-8 JSON, or a stored message or note that is damaged."""


class IndexBusy(StoreError):
    """Another process owns the index folder. Writes are queued in the database and indexed by the owner."""


class IndexBroken(StoreError):
    """The vector index failed. The database is intact, and the index can be rebuilt from it."""


class IndexUnavailable(StoreError):
    """The server of the vector index is away, slow or failing. Writes are queued in the database."""


class EmbedderError(StoreError):
    """An embedder failed, or did not return one finite vector of its model's size for each text."""


class EmbedderUnavailable(EmbedderError):
    """The embedding model is not installed, not on this machine, away, slow or failing. BM25 still works."""


class EmbedderMismatch(StoreError):
    """The store is read by another model than the given one. Vectors of two models are never mixed."""


class ReembedError(StoreError):
    """A change of the model cannot begin, or its gate is invalid."""


class IngestError(StoreError):
    """A file that cannot be ingested, while the others go on; or invalid paths or options.

    Attributes:
        source: The file, as it was given, or the name of the argument.
    """

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source


class RecallError(StoreError):
    """An invalid argument of a recall, or a part of a policy that fails."""


class WouldWait(Exception):
    """Nothing was written: the write would have had to wait for a lock, a disk or a server."""
