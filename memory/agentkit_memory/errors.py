"""Everything that can go wrong while memory is opened, written, indexed or searched.

Every error says what went wrong, where, what was expected and what to do about it.
"""

from __future__ import annotations

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


class StoreError(Exception):
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
    """The file is not a database, or a damaged one. It is left as it is."""


class StoreVersion(StoreError):
    """The database, or a message in it, was written by a newer version of agentkit."""


class StoreClosed(StoreError):
    """The memory was closed, or opened by a process that forked this one since."""


class ScopeError(StoreError, ValueError):
    """A scope that names nobody, or names that no database can hold."""


class HeadMoved(StoreError):
    """Another writer extended the conversation first. Nothing was written, and the view is up to date again.

    Attributes:
        expected: Messages the view held.
        actual: Messages the conversation holds now.
    """

    def __init__(self, session: str, expected: int, actual: int) -> None:
        super().__init__(
            f"conversation {session!r}: another writer added {actual - expected} message(s) after message {expected}; "
            "they are in `session.conversation` now: look at them, then append again"
        )
        self.expected = expected
        self.actual = actual


class KeyReused(StoreError):
    """An idempotency key was used before, for other messages."""


class NameTaken(StoreError):
    """A fork has the name of another branch of the conversation."""


class NotFound(StoreError):
    """What was named is not stored in this scope, or is no more."""


class FactError(StoreError, ValueError):
    """A fact that says nothing, that cannot be stored, or that ends before it begins."""


class ExtractionError(StoreError):
    """An extractor is none, or said nothing about some turns that facts can be read from: it is asked again then.

    Among the latter is an answer with drafts of wrong types: it says which fields those are, and what was expected.
    """


class MessageUnreadable(StoreError):
    """What is no message or cannot be written as UTF-8 JSON, or a stored message that is damaged."""


class IndexBusy(StoreError):
    """Another process owns the index folder. What is written is queued in the database and indexed by the owner."""


class IndexBroken(StoreError):
    """The vector index failed. The database is intact, and the index can be rebuilt from it."""


class IndexUnavailable(StoreError):
    """The server of the vector index is away, slow or failing. What is written is queued in the database."""


class EmbedderError(StoreError):
    """An embedder failed, or returned something that is not one finite vector of its model's size for each text."""


class EmbedderUnavailable(EmbedderError):
    """The model that embeds is not installed, not on this machine, away, slow or failing. Words still find."""


class EmbedderMismatch(StoreError):
    """The store is read by another model than the one that was given. Vectors of two models are never mixed."""


class ReembedError(StoreError):
    """A change of the model cannot begin, or what is asked of the new one makes no sense."""


class IngestError(StoreError):
    """A file that cannot be ingested, while the others go on; or options that say nothing about how to.

    Attributes:
        source: The file, as it was given, or the name of the option.
    """

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source


class RecallError(StoreError):
    """A question that cannot be asked."""


class WouldWait(Exception):
    """Nothing was written: it would have taken waiting for a lock, a disk or a server."""
