"""`OpenStore`: the database, embedders and indexes of a memory, which all its scopes share."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentkit_memory.background import BackgroundWorker
from agentkit_memory.checks import expanded, is_address
from agentkit_memory.conversations.removal import resume_removals
from agentkit_memory.conversations.stored_session import StoredSession
from agentkit_memory.database.engine import Database
from agentkit_memory.embedders.store_embedders import Embedders
from agentkit_memory.erasure.erase import resume
from agentkit_memory.errors import IndexUnavailable, InvalidArgument, StoreError
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.index.opening import index_opener
from agentkit_memory.index.vector_index import IndexOpener
from agentkit_memory.process.on_demand import OnDemand
from agentkit_memory.reembed.switching import establish, renew
from agentkit_memory.store.missing_documents import MissingDocuments
from agentkit_memory.store.recall_logs import RecallLogs
from agentkit_prompts.ranking.embedder import Embedder

if TYPE_CHECKING:
    from agentkit_memory.ingest.ingest_options import IngestOptions
    from agentkit_memory.ingest.report import IngestProgress, IngestReport
    from agentkit_memory.scope import Scope, SharedScope

_MAX_WAIT = 2.0
"""Maximum seconds that `close` waits for a running batch. A longer batch, such as a hanging model, fails afterwards."""
_FILE_NAME = "memory.db"
_FILE_ENDINGS = (".db", ".sqlite", ".sqlite3")


def _check_folder(path: Path) -> None:
    """Check that the path of a folder is not the path of a database file.

    Raises:
        InvalidArgument: The path has the ending of a database file, and is not an existing folder.
    """
    if path.suffix not in _FILE_ENDINGS or path.is_dir():
        return
    folder = path.with_suffix("")
    if path.name == _FILE_NAME and path.is_file():
        folder = path.parent
    raise InvalidArgument(
        f"{path}: expected a folder, got the name of a database file: pass the folder of {_FILE_NAME} and index/, "
        f"such as Memory({str(folder)!r})",
        name="target",
    )


class OpenStore:
    """An open database with its indexes, each opened at its first use; see `Memory`.

    The constructor resumes interrupted erasures.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        index: str | os.PathLike[str] | IndexOpener | None,
        embedder: Embedder | str | None,
        timeout: float,
        clock: Callable[[], float],
        keep_recalls: int | None,
    ) -> None:
        database_place: Path | str
        default_index: Path | str
        if isinstance(target, str) and is_address(target):
            # PostgreSQL alone is enough: by default, the index is in the same database.
            database_place, default_index = target, target
        # An empty text, such as an unset variable, would be the working folder.
        elif isinstance(target, str | os.PathLike) and target != "":
            folder = expanded(target)
            _check_folder(folder)
            database_place, default_index = folder / _FILE_NAME, folder / "index"
        else:
            raise InvalidArgument(
                f"expected a folder or a postgresql:// URL to open a memory in, got {target!r}", name="target"
            )
        opener = None if index is None else index_opener(index, timeout)
        RecallLogs.check_keep(keep_recalls)
        self.database = Database.open(database_place, timeout=timeout, clock=clock)
        self.embedders = Embedders(self.database)
        self.indexes = Indexes(self.database, opener or index_opener(default_index, timeout), self.embedders.get)
        worker = BackgroundWorker(self.database, self.indexes)
        self.upkeep = [OnDemand(f"agentkit-memory-{part}", partial(worker.step, part)) for part in ("turns", "index")]
        """Threads that turn messages into items and index items, woken by changes and by recalls that found waiting
        work. Two threads, so that messages still become items while a model hangs."""
        self.logs = RecallLogs(self.database, keep_recalls)
        self.missing_documents = MissingDocuments(self.database)
        # If a removal fails again, the store is still opened; the next opening resumes the removal.
        with suppress(StoreError):
            resume_removals(self.database)
            resume(self.database, self.indexes)
        try:
            renew(self.database)
            if embedder is not None:
                establish(self.database, self.embedders.add(embedder))
        except BaseException:
            self.close()
            raise

    def ingest(
        self,
        owner: Scope | SharedScope,
        paths: object,
        options: IngestOptions | None,
        on_progress: Callable[[IngestProgress], None] | None,
    ) -> IngestReport:
        """Store the documents of files for an owner, and index them; see `Memory.ingest`."""
        from agentkit_memory.ingest.document_writer import DocumentWriter
        from agentkit_memory.ingest.find_files import checked_paths
        from agentkit_memory.ingest.ingest_options import checked_options
        from agentkit_memory.ingest.pipeline import ingest_files
        from agentkit_memory.store.outbox import pending
        from agentkit_memory.store.scope_rows import scope_id

        sources, how = checked_paths(paths), checked_options(options, on_progress)
        scope = scope_id(self.database, owner)

        def index() -> None:
            # The index of another process embeds its items itself.
            self.index_if_free(scope)

        # The index is opened first, so that a missing extra raises before anything is stored.
        if not self.indexes.is_open:
            index()
        writer = DocumentWriter(self.database, scope, owner.key)
        report = ingest_files(writer, sources, how, on_progress, index)
        self.index_if_free(scope)
        waiting = pending(self.database)
        if waiting:
            self.catch_up_later()
        return replace(report, pending=waiting)

    def index_if_free(self, scope: int | None = None) -> None:
        """Index the waiting items, of one scope or of all scopes.

        If another process owns the index, or its disk is full, the items wait for the next user of the index.
        """
        with suppress(IndexUnavailable):
            self.indexes.catch_up(scope=scope)

    def catch_up_later(self) -> None:
        """Wake the threads that write the items of new messages and index waiting items."""
        for each in self.upkeep:
            each.wake()

    def close(self) -> None:
        # Embedders are closed first, so that callers that wait for an embedder continue at once.
        self.embedders.close()
        for each in self.upkeep:
            each.stop(_MAX_WAIT)
        try:
            self.indexes.close()
        finally:
            self.database.close()


def pool_name(function: object) -> str:
    """Return the name of the thread pool of the store that runs a function: `sessions` or `memory`."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(getattr(function, "__self__", None), StoredSession):
        return "sessions"
    return "memory"
