"""`Memory`: conversations and documents in SQL, and an index to recall them by."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from agentkit_memory.bridge import Threads
from agentkit_memory.errors import IndexBusy, IndexUnavailable, ScopeError, StoreError, StoreFull, StoreUnavailable
from agentkit_memory.ingest.ingest_options import IngestOptions, given_options
from agentkit_memory.ingest.report import IngestProgress, IngestReport
from agentkit_memory.records import Erasure, RecallLog, Repair, Verification
from agentkit_memory.reembedding import Gate, Reembedding, ReembedProgress
from agentkit_memory.scope import Scope, check_name
from agentkit_memory.stored_session import StoredSession, shown
from agentkit_memory.values import expanded
from agentkit_prompts.ranking.embedder import Embedder

if TYPE_CHECKING:
    from agentkit_memory.background import BackgroundWorker
    from agentkit_memory.facts.drafts import Extract
    from agentkit_memory.index.read_view import Reading
    from agentkit_memory.index.vector_index import IndexOpener, VectorIndex
    from agentkit_memory.recall.recall import Recall
    from agentkit_memory.recall.recall_policy import RecallPolicy
    from agentkit_memory.store.engine import Database
    from agentkit_memory.store.fact_rows import Facts

__all__ = ["Memory"]

P = ParamSpec("P")
T = TypeVar("T")
_GATE = Gate()


class _Store:
    """What the memories of one `open` share: the database, and its indexes once they are needed."""

    def __init__(self, database: Database, opener: IndexOpener, keep_recalls: int | None) -> None:
        from agentkit_memory.embedders.store_embedders import Embedders
        from agentkit_memory.index.indexes import Indexes
        from agentkit_memory.store.recall_logs import RecallLogs

        self.database = database
        self.embedders = Embedders(database)
        self.indexes = Indexes(database, opener, embed=self.embedders.embed, clock=database.clock)
        self.threads = Threads()
        self.logs = RecallLogs(database, keep_recalls)

    def index(self) -> VectorIndex:
        """Return the index that is read, loaded and speaking of this database.

        Raises:
            IndexBusy: Another process owns it.
        """
        return self.indexes.get()

    def catch_up(self) -> VectorIndex:
        """Return the index after writing to it what the outbox holds."""
        return self.indexes.catch_up()

    def read(self, act: Callable[[Reading], T]) -> T:
        """Let `act` read the space that is read, all of it from this one."""
        from agentkit_memory.index.read_view import Reading

        return self.indexes.ask(
            lambda space: act(Reading(self.database, self.logs, self.indexes, self.embedders, space))
        )

    def close(self) -> None:
        self.threads.close()
        self.embedders.close()  # first: who waits for one may hold an index, which is waited for
        try:
            self.indexes.close()
        finally:
            self.database.close()

    def read_by(self, embedder: Embedder | str) -> None:
        """Let a new store be read by the model of an embedder; of another one, see that it is."""
        from agentkit_memory.index.switching import establish

        establish(self.database, self.embedders.add(embedder))


class Memory:
    """What an agent remembers, within one scope.

    Made by `open`. Methods may be called from any thread; close it, or use it as a context manager.
    """

    def __init__(self, store: _Store, scope: Scope) -> None:
        self._store = store
        self.scope = scope
        """Whose memory is read and written."""

    @classmethod
    def open(
        cls,
        target: str | os.PathLike[str],
        *,
        scope: Scope | str = "local",
        index: str | os.PathLike[str] | IndexOpener | None = None,
        embedder: Embedder | str | None = None,
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
        keep_recalls: int | None = 1_000,
    ) -> Memory:
        """Open the memory in a folder, making it if there is none, or in a PostgreSQL database.

        Args:
            target: Folder that holds `memory.db` and `index/`, or a `postgresql://` URL.
            scope: Whose memory to read and write; a string is the name of a tenant.
            index: Folder of the vector index, where it is not `target/index`; the address of a Qdrant server
                (`http://...`), which many processes may share; or what opens an index of your own. Required with a
                URL as `target`.
            embedder: Finds by meaning too, beside words: an embedder that names its `model`, or the name of one, such
                as `fastembed:BAAI/bge-small-en-v1.5`. A store keeps to one model; `reembed` changes it.
            timeout: Seconds to wait for a lock of another process.
            clock: Says what time it is, in seconds since 1970. Nothing is ordered by it.
            keep_recalls: About how many recall logs to keep of each scope, the newest; None for all, 0 for none.

        Raises:
            StoreError: The store is locked, read-only, corrupt, newer than this code, or cannot be reached.
            ScopeError: The scope names nobody.
            EmbedderMismatch: The store is read by another model, or by words alone.
            EmbedderError: The embedder does not name its model or, asked for the first vector, fails.
        """
        from agentkit_memory.erase import resume
        from agentkit_memory.index.opening import index_opener, indexes_in
        from agentkit_memory.store.engine import Database
        from agentkit_memory.store.recall_logs import checked_keep

        scope = Scope.of(scope)
        place: Path | str
        if isinstance(target, str) and "://" in target:
            if index is None:
                raise StoreUnavailable(f"{target.split('://')[0]}://...: give the folder of the index too: index=...")
            place = target
        elif not isinstance(target, str | os.PathLike):
            raise StoreUnavailable(f"expected a folder or a postgresql:// URL to open a memory in, got {target!r}")
        else:
            home = expanded(target)
            place = home / "memory.db"
            index = indexes_in(home / "index") if index is None else index
        opener, keep = index_opener(index), checked_keep(keep_recalls)
        store = _Store(Database.open(place, timeout=timeout, clock=clock), opener, keep)
        with suppress(StoreError):  # an erasure that was interrupted, and cannot go on now either, waits further
            resume(store.database, store.indexes)
        try:
            if embedder is not None:
                store.read_by(embedder)
        except BaseException:
            store.close()
            raise
        return cls(store, scope)

    def within(self, scope: Scope | str) -> Memory:
        """Return the same store, seen from another scope. Closing either closes both."""
        return Memory(self._store, Scope.of(scope))

    def ingest(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        options: IngestOptions | None = None,
        on_progress: Callable[[IngestProgress], None] | None = None,
    ) -> IngestReport:
        """Store text, Markdown, HTML, PDF and JSON lines files, and index them.

        A file whose content is stored already is passed over, a changed one is shown as it was until all of it is
        stored, one that is gone from an ingested folder is removed. It may be interrupted at any point and started
        again. While another process owns the index, everything is stored and queued for it (`IngestReport.pending`).

        Args:
            paths: Files and folders. Named files may have any ending; of folders, files whose ending is known are
                taken.
            options: How to read them.
            on_progress: Called after every file, and now and then within a large one.

        Raises:
            IngestError: These are no paths or no options. Files that cannot be read are in `IngestReport.errors`.
            StoreError: The database cannot be written.
        """
        from agentkit_memory.index.outbox import pending
        from agentkit_memory.ingest.find_files import given_paths
        from agentkit_memory.ingest.pipeline import ingest_files
        from agentkit_memory.store.documents import DocumentStore

        given, how = given_paths(paths), given_options(options, on_progress)
        self._index_if_free()  # first of all: without the extra it needs, nothing is half done
        store = DocumentStore(self._store.database, self._own_scope(), self.scope.key)
        report = ingest_files(store, given, how, on_progress, self._index_if_free)
        self._index_if_free()
        return report.with_pending(pending(self._store.database))

    def recall(
        self,
        query: str,
        *,
        limit: int = 5,
        policy: RecallPolicy | str | None = None,
        session: StoredSession | None = None,
        visible: int | None = None,
        now: datetime | float | None = None,
    ) -> Recall:
        """Return what fits the question, best first, of what the scope may read: passages, turns and facts.

        Whatever fails on the way is left out and told in `Recall.degraded`; only the database itself is needed.

        Args:
            query: The question, in any words.
            limit: Most documents to return, and most facts.
            policy: How to find, score and choose; one of `POLICIES` by name, or your own.
            session: The conversation that is going on: what the model sees of it anyway is not recalled.
            visible: How many of its latest messages the model sees, where these are not all.
            now: What time it is, where that is not what the clock says: "last week" is relative to it.

        Raises:
            RecallError: The query is no text, a number is out of range, or there is no such policy or session.
            StoreError: The database cannot be read.
        """
        from agentkit_memory.recall.recall_policy import named_policy
        from agentkit_memory.recall.search import check_question, search, seconds

        check_question(query, limit, visible, now)
        conversation, hidden = shown(session, self._store.database, visible)
        how, at = named_policy(policy), self._store.database.clock() if now is None else seconds(now)
        return self._store.read(
            lambda reading: search(
                reading,
                self.scope,
                query,
                limit=limit,
                policy=how,
                now=at,
                hidden=hidden,
                conversation=conversation,
            )
        )

    def session(
        self, session_id: str, *, branch: str = "main", expires_at: float | None = None, load: bool = True
    ) -> StoredSession:
        """Open a conversation of this scope, making it if there is none. One that has expired begins anew.

        Args:
            session_id: Its name.
            branch: Which fork of it to open.
            expires_at: When it is over, in seconds since 1970: nothing of it is recalled from then on, and `expire`
                deletes it. `math.inf` for never. What was said before holds, when this does not say.
            load: Whether to read the messages now. Reading pages of a long conversation does not need it.

        Raises:
            ScopeError: A name is empty, too long or holds NUL, or the time is none.
            NotFound: There is no such branch.
            StoreError: The database cannot be read or written.
        """
        from agentkit_memory.store.removal import open_branch

        check_name("session id", session_id)
        check_name("branch", branch)
        if not session_id:
            raise ScopeError("a session id cannot be empty: name the conversation")
        row = open_branch(self._store.database, self._own_scope(), session_id, branch, expires_at)
        return StoredSession(row, load=load)

    def delete_session(self, session_id: str) -> bool:
        """Delete a conversation of this scope, its forks and everything made of it; say whether there was one.

        Raises:
            ScopeError: No conversation can have that name.
        """
        from agentkit_memory.store.removal import delete_named

        check_name("session id", session_id)
        found = delete_named(self._store.database, self.scope, session_id)
        self._index_if_free()
        return found

    def expire(self, now: float | None = None) -> dict[str, int]:
        """Delete the conversations of all scopes that have expired, and what was made of them.

        Args:
            now: What time it is, in seconds since 1970, where that is not what the clock says.

        Returns:
            How many rows went, per table.

        Raises:
            ScopeError: The time is none.
        """
        from agentkit_memory.store.removal import expire

        removed = expire(self._store.database, self._store.database.clock() if now is None else now)
        self._index_if_free()
        return removed

    @property
    def facts(self) -> Facts:
        """The facts of this scope: `add`, `get`, `list` and `remove` them."""
        from agentkit_memory.store.fact_rows import Facts

        return Facts(self._store.database, self.scope)

    def recall_logs(
        self, *, after: int | None = None, before: int | None = None, limit: int = 50
    ) -> tuple[RecallLog, ...]:
        """Return what was recalled in exactly this scope, in order; with neither number, the newest.

        Args:
            after: Return the first logs after this one.
            before: Return the last logs before this one.
            limit: Most logs to return.
        """
        return self._store.logs.of(self.scope, after=after, before=before, limit=limit)

    def erase(self, subject: Scope | str) -> Erasure:
        """Remove everything that belongs to a subject, from SQL and from the index, and return the proof.

        The subject owns the scopes that have all its names: `Scope("acme", user="ada")` is Ada with all her sessions
        and agents, `"acme"` the whole tenant. Conversations, tool calls, documents, facts, recall logs and kept
        vectors go, with facts of others that were taken from them. If it is interrupted, or another process owns the
        index, it is taken up again when the store is next opened.

        Raises:
            ScopeError: The subject is of another tenant.
            StoreError: The database cannot be written; what is erased by then stays erased.
        """
        from agentkit_memory.erase import erase

        subject = Scope.of(subject)
        if subject.tenant != self.scope.tenant:
            raise ScopeError(
                f"erase: {subject.tenant!r} is not the tenant of this memory ({self.scope.tenant!r}); "
                f"if it is meant, memory.within({subject.tenant!r}).erase(...)"
            )
        return erase(self._store.database, self._store.indexes, subject)

    def compact(self) -> bool:
        """Rewrite a SQLite file and the index without what was deleted; say whether nothing of it is left in them.

        Raises:
            StoreLocked: Somebody else was writing all the time.
            IndexBusy: Another process owns the index.
        """
        rewritten = self._store.database.compact()
        return self._store.indexes.compact() and rewritten

    async def run(self, act: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function of this memory, or of a session of it, from async code: `await memory.run(memory.recall, q)`.

        It is called in a thread of the store's own, so that the event loop does not wait for it. If the caller is
        cancelled, what has begun is waited for.
        """
        return await self._store.threads.run(act, *args, **kwargs)

    def verify(self) -> Verification:
        """Compare the index with SQL, point by point, for all scopes, changing nothing.

        Raises:
            IndexBusy: Another process owns the index.
        """
        return self._store.indexes.verify()

    def repair(self) -> Repair:
        """Index what is missing or stale, forget what is left over; return what was found before and after.

        Raises:
            IndexBusy: Another process owns the index.
        """
        return self._store.indexes.repair()

    @property
    def model(self) -> str:
        """Name of the model that the store is read by, beside words; empty for words alone."""
        return self._store.indexes.active().model

    def reembed(
        self,
        embedder: Embedder | str | None,
        *,
        gate: Gate | None = _GATE,
        on_progress: Callable[[ReembedProgress], None] | None = None,
    ) -> Reembedding:
        """Build an index of another model beside the one that is read, check it, and let it be read instead.

        Recall goes on meanwhile, and what is written reaches both. It may be interrupted anywhere and called again,
        by one process at a time; what was embedded stays. Afterwards this memory asks the new embedder.

        Args:
            embedder: The new one, or its name; None for words alone.
            gate: What the new index has to show; None for nothing.
            on_progress: Called after every batch.

        Raises:
            ReembedError: A change to yet another model was begun: finish it, or abandon it. Or the gate is none.
            EmbedderError: The embedder does not name its model or, asked for the first vector, fails.
            IndexBusy: Another process is changing the model.
        """
        from agentkit_memory.index.reembed import reembed

        encoder = None if embedder is None else self._store.embedders.add(embedder)
        return reembed(self._store.indexes, self._store.embedders, encoder, gate, self.scope, on_progress)

    def abandon_reembed(self) -> bool:
        """Drop an index that was being built by `reembed`; say whether there was one."""
        from agentkit_memory.index.switching import abandon

        found = abandon(self._store.database)
        self._store.indexes.sweep()
        return bool(found)

    def worker(self, extract: Extract | None = None) -> BackgroundWorker:
        """Return what keeps this store up to date for all its scopes: `with memory.worker():` does it in threads.

        Args:
            extract: Takes facts from what was said; `agentkit.fact_extractor` makes one of a model. All turns are
                read, those that are stored already too, each once.

        Raises:
            ExtractionError: `extract` is no function.
        """
        from agentkit_memory.background import BackgroundWorker

        return BackgroundWorker(self._store.database, self._store.indexes, extract)

    def close(self) -> None:
        """Close the database and the index. Closing twice is fine."""
        self._store.close()

    def _own_scope(self) -> int:
        from agentkit_memory.store.scopes import scope_id

        return scope_id(self._store.database, self.scope)  # looked up each time: somebody may have erased it

    def _index_if_free(self) -> None:
        with suppress(IndexBusy, IndexUnavailable, StoreFull):  # its owner will do it, or the next who finds it well
            self._store.catch_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()
