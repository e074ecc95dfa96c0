"""`Memory`: conversations and documents in SQL, and an index to recall them by."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from agentkit_memory.conversations.stored_session import StoredSession, shown
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.ingest.ingest_options import IngestOptions, given_options
from agentkit_memory.ingest.report import IngestProgress, IngestReport
from agentkit_memory.process.async_methods import async_method
from agentkit_memory.scope import Scope, check_name
from agentkit_memory.store.records import Erasure, RecallLog, SessionInfo
from agentkit_prompts.hints import Hinted, with_option_hints
from agentkit_prompts.ranking.embedder import Embedder

if TYPE_CHECKING:
    from agentkit_memory.admin.admin import Admin
    from agentkit_memory.background import BackgroundWorker
    from agentkit_memory.facts.drafts import Extract
    from agentkit_memory.facts.fact_rows import Facts
    from agentkit_memory.index.vector_index import IndexOpener
    from agentkit_memory.ingest.given_documents import Documents
    from agentkit_memory.recall.recall_filter import RecallFilter
    from agentkit_memory.recall.recall_policy import RecallPolicy
    from agentkit_memory.recall.recall_result import Recall
    from agentkit_prompts.context.items import Speaker
    from agentkit_prompts.system.threads import Threads

__all__ = ["Memory"]

P = ParamSpec("P")
T = TypeVar("T")


class Memory(metaclass=Hinted):
    """Conversations, documents and facts of one scope.

    The constructor opens the memory in a folder, which is created if missing, or in a PostgreSQL database. Methods may
    be called from any thread. Close the memory, or use it as a context manager. For async code, methods such as
    `recall` have a second form with an `a`: `arecall`.

    Args:
        target: Folder of `memory.db` and `index/`, or a `postgresql://` URL.
        scope: Scope to read and write; a string is the name of a tenant.
        index: Folder of the vector index if it is not `target/index`; the address of a Qdrant server (`http://...`),
            which many processes may share; or a function that opens a custom index. Required with a URL as `target`.
        embedder: Adds dense retrieval to BM25: an embedder with the name of its `model`, or the name of an embedder,
            such as `fastembed:BAAI/bge-small-en-v1.5`. A store uses a single model; `admin.reembed` changes it.
        timeout: Maximum seconds to wait for a lock of another process.
        clock: Returns the time, in seconds since 1970. Nothing is ordered by it.
        keep_recalls: Approximate number of recall logs to store, the newest of all scopes together; None for all, 0
            for none. A log takes about 4 kB.

    Raises:
        StoreError: The store is locked, read-only, corrupt, newer than this code, or cannot be reached.
        InvalidArgument: An argument is invalid, or the scope has no tenant.
        EmbedderError: The store is read by another model or by BM25 alone; or the embedder has no `model` name, or
            fails when it computes the first vector.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        *,
        scope: Scope | str = "local",
        index: str | os.PathLike[str] | IndexOpener | None = None,
        embedder: Embedder | str | None = None,
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
        keep_recalls: int | None = 10_000,
    ) -> None:
        from agentkit_memory.admin.copy_folder import remove_copy
        from agentkit_memory.open_store import OpenStore

        self.scope = Scope.of(scope)
        """Scope that is read and written."""
        self._store = OpenStore(target, index, embedder, timeout, clock, keep_recalls)
        self._opened = True
        remove_copy(self._store.database)

    def within(self, scope: Scope | str) -> Memory:
        """Return the same store in another scope, without `admin`. Closing either memory closes both."""
        other = object.__new__(Memory)
        other.scope = Scope.of(scope)
        other._store = self._store
        other._opened = False
        return other

    @property
    def admin(self) -> Admin:
        """What the operator of the store does with it, for all of its scopes: verify, back up, restore, measure it.

        Raises:
            InvalidArgument: This is a handle of one scope, made by `within`: only the memory that was opened has it.
        """
        from agentkit_memory.admin.admin import Admin

        if not self._opened:
            raise InvalidArgument(
                "admin: this memory is a handle of one scope, made by `within`; what concerns the whole store is done "
                "with the memory that `Memory(...)` opened",
                name="admin",
            )
        return Admin(self._store, self.scope)

    def ingest(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        options: IngestOptions | None = None,
        on_progress: Callable[[IngestProgress], None] | None = None,
    ) -> IngestReport:
        """Store text, Markdown, HTML, PDF and JSON lines files, and index them.

        A file whose content is stored already is skipped, a changed one is recalled as it was until all of it is
        stored, one that is gone from an ingested folder is removed. It may be interrupted at any point and started
        again. While another process owns the index, everything is stored and queued for it (`IngestReport.pending`).

        Args:
            paths: Files and folders. Named files may have any ending; of folders, files whose ending is known are
                taken.
            options: How to read them.
            on_progress: Called after every file, and now and then within a large one.

        Raises:
            IngestError: The paths or the options have the wrong type. Files that cannot be read are in
                `IngestReport.errors`.
            StoreError: The database cannot be written.
        """
        from agentkit_memory.ingest.document_writer import DocumentWriter
        from agentkit_memory.ingest.find_files import given_paths
        from agentkit_memory.ingest.pipeline import ingest_files
        from agentkit_memory.store.outbox import pending

        given, how = given_paths(paths), given_options(options, on_progress)
        store, own = self._store, self._own_scope()

        def index() -> None:  # what others wait for is not embedded here
            store.index_if_free(own)

        if not store.indexes.is_open:  # first: without the extra it needs, nothing is left half done
            index()
        writer = DocumentWriter(store.database, own, self.scope.key)
        report = ingest_files(writer, given, how, on_progress, index)
        store.index_if_free(own)
        waiting = pending(store.database)
        if waiting:
            store.catch_up_later()
        return replace(report, pending=waiting)

    @with_option_hints
    def recall(
        self,
        query: str,
        *,
        limit: int = 5,
        policy: RecallPolicy | str | None = None,
        session: StoredSession | None = None,
        visible: int | None = None,
        now: datetime | float | None = None,
        roles: Collection[Speaker] | None = None,
        where: RecallFilter | None = None,
    ) -> Recall:
        """Return what fits the question, best first, of what the scope may read: chunks, turns and facts.

        It reads the index as it is and waits for nothing but the vector of the question, and that shortly. What is not
        indexed yet is found by its words; a thread of this memory indexes it afterwards. The log is written later, too.
        Whatever fails on the way is left out and reported in `Recall.degraded`; only the database itself is needed.

        Args:
            query: The question, in any words.
            limit: Most documents and messages together to return, and most facts.
            policy: How to find, score and choose; one of `POLICIES` by name, or your own.
            session: The current conversation: messages of it that the model sees anyway are not recalled.
            visible: How many of its latest messages the model sees, where these are not all.
            now: The time of the question, where it differs from the clock: "last week" is relative to it.
            roles: Whose messages are returned: `("user",)` leaves out what the model answered. None for all.
            where: Of which kind, source, time and metadata they have to be.

        Raises:
            InvalidArgument: The query is not text, a number is out of range, or the policy or session is unknown.
            StoreError: The database cannot be read.
        """
        from agentkit_memory.recall.asked import Asked, check_question
        from agentkit_memory.recall.recall_filter import seconds
        from agentkit_memory.recall.recall_policy import named_policy
        from agentkit_memory.recall.search import Sources, search

        check_question(query, limit, visible, now, roles, where)
        conversation, hidden = shown(session, self._store.database, visible)
        store = self._store
        valid_at = store.database.clock()
        at = valid_at if now is None else seconds(now)
        how = named_policy(policy)
        asked = Asked(self.scope, query, limit, how, at, valid_at, conversation, hidden, roles, where)
        with store.database.computing.hold() as permit:
            sources = Sources(store.indexes, store.embedders, store.logs, permit)
            found, waits = search(sources, asked)
        if waits:
            store.catch_up_later()
        return found

    def session(
        self,
        session_id: str,
        *,
        branch: str = "main",
        expires_at: float | None = None,
        load: bool = True,
        allow_media: bool = False,
    ) -> StoredSession:
        """Open a conversation of this scope, made if missing. One that has expired begins anew.

        Args:
            session_id: Its name.
            branch: Which fork of it to open.
            expires_at: When it expires, in seconds since 1970: nothing of it is recalled from then on, and
                `admin.expire` deletes it. `math.inf` for never; None keeps what was set before.
            load: Whether to read the messages now. Reading pages of a long conversation does not need it.
            allow_media: Whether the media of messages that are appended in the form of a provider may be in a file of
                this machine, or at an address that is not public. Leave it where such messages come from others.

        Raises:
            InvalidArgument: A name is empty, too long or holds NUL, or the time is invalid.
            NotFound: There is no such branch.
            StoreError: The database cannot be read or written.
        """
        from agentkit_memory.conversations.removal import open_branch

        check_name("session id", session_id)
        check_name("branch", branch)
        if not session_id:
            raise InvalidArgument("a session id cannot be empty: name the conversation", name="session")
        row = open_branch(self._store.database, self._own_scope(), session_id, branch, expires_at)
        return StoredSession(row, self.scope, load=load, allow_media=allow_media)

    def sessions(self, *, name: str | None = None, after: str = "", limit: int = 50) -> tuple[SessionInfo, ...]:
        """Return the conversations of exactly this scope, by name, without opening them.

        Args:
            name: Only the one of this name.
            after: Only those whose names come after this one, such as the last of the page before.
            limit: Most to return.

        Raises:
            InvalidArgument: A name or the limit is invalid.
            StoreError: The database cannot be read.
        """
        from agentkit_memory.conversations.listing import sessions_of

        return sessions_of(self._store.database, self.scope, name=name, after=after, limit=limit)

    def newest_sessions(self, *, limit: int = 50) -> tuple[tuple[str, str], ...]:
        """Return user and name of the conversations of this tenant and its users, that which was used last first.

        In the scope of a user, only those of that user; those that an agent keeps for itself are left out.

        Args:
            limit: Most to return.

        Raises:
            InvalidArgument: The limit is invalid.
            StoreError: The database cannot be read.
        """
        from agentkit_memory.conversations.listing import newest_sessions

        return newest_sessions(self._store.database, self.scope, limit=limit)

    def delete_session(self, session_id: str) -> bool:
        """Delete a conversation of this scope, its forks and everything made of it; return whether there was one.

        Raises:
            InvalidArgument: The name is invalid.
        """
        from agentkit_memory.conversations.removal import delete_named

        check_name("session id", session_id)
        found = delete_named(self._store.database, self.scope, session_id)
        self._store.catch_up_later()
        return found

    @property
    def documents(self) -> Documents:
        """The documents of this scope: `add` texts, `list`, `get` and `forget` them and ingested files."""
        from agentkit_memory.ingest.given_documents import Documents

        return Documents(self._store.database, self.scope, self._store.catch_up_later)

    @property
    def facts(self) -> Facts:
        """The facts of this scope: `add`, `update`, `get`, `list`, `search` and `remove` them."""
        from agentkit_memory.facts.fact_rows import Facts

        def find(query: str, limit: int) -> list[str]:
            from agentkit_memory.recall.recall_filter import RecallFilter

            return [fact.id for fact in self.recall(query, limit=limit, where=RecallFilter(kinds=("fact",))).knowledge]

        return Facts(self._store.database, self.scope, find)

    def recall_logs(
        self, *, after: int | None = None, before: int | None = None, limit: int = 50
    ) -> tuple[RecallLog, ...]:
        """Return the recalls of exactly this scope, in order; with neither number, the newest.

        Args:
            after: Return the first logs after this one.
            before: Return the last logs before this one.
            limit: Most logs to return.

        Raises:
            StoreError: The database cannot be read, or what is to be logged cannot be written.
        """
        from agentkit_memory.store.scope_rows import known_ids

        self._store.database.deferred.settle()
        scopes = known_ids(self._store.database, self.scope)
        return self._store.logs.page(scopes, after=after, before=before, limit=limit)

    def erase(self, subject: Scope | str) -> Erasure:
        """Remove everything that belongs to a subject, from SQL and from the index, and return the proof.

        The subject owns the scopes that have all its names: `Scope("acme", user="ada")` is Ada with all her sessions
        and agents, `"acme"` the whole tenant. Conversations, tool calls, documents, facts, recall logs and kept
        vectors are deleted, with facts of others that were taken from them. If it is interrupted, or another process
        owns the index, it is resumed when the store is next opened.

        Raises:
            InvalidArgument: The subject is of another tenant.
            StoreError: The database cannot be written; what was erased before stays erased.
        """
        from agentkit_memory.erasure.erase import erase

        subject = Scope.of(subject)
        if subject.tenant != self.scope.tenant:
            raise InvalidArgument(
                f"erase: {subject.tenant!r} is not the tenant of this memory ({self.scope.tenant!r}); "
                f"to erase it anyway, call memory.within({subject.tenant!r}).erase(...)",
                name="tenant",
                value=subject.tenant,
            )
        return erase(self._store.database, self._store.indexes, subject)

    async def run(self, act: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call any other function that uses the store from async code: `await memory.run(memory.admin.verify)`.

        It runs in a thread of the store, so that the event loop does not wait; functions of a session have threads of
        their own, so that an append does not wait behind recalls. When the caller is cancelled, a call
        that has begun is waited for.
        """
        return await self._store.database.threads[_kind_of(act)].finish(act, *args, **kwargs)

    aingest, arecall, asession = async_method(ingest), async_method(recall), async_method(session)
    adelete_session, aerase = async_method(delete_session), async_method(erase)

    @property
    def _threads(self) -> Threads:
        return self._store.database.threads["memory"]

    @property
    def model(self) -> str:
        """Name of the dense model that the store is read by; empty for BM25 alone."""
        return self._store.indexes.active().model

    def worker(self, extract: Extract | None = None) -> BackgroundWorker:
        """Return a worker that keeps this store up to date for all its scopes; `with memory.worker():` runs threads.

        Args:
            extract: Extracts facts from turns; `agentkit.memory.fact_extractor` makes one of a model. All turns are
                read once, those that were stored before too.

        Raises:
            InvalidArgument: `extract` is not callable.
        """
        from agentkit_memory.background import BackgroundWorker

        return BackgroundWorker(self._store.database, self._store.indexes, extract)

    def close(self) -> None:
        """Close the database and the index. Closing twice is fine."""
        self._store.close()

    def _own_scope(self) -> int:
        from agentkit_memory.store.scope_rows import scope_id

        return scope_id(self._store.database, self.scope)  # looked up each time: it may have been erased

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _kind_of(act: object) -> str:
    """Return which threads of the store a function runs in."""
    while isinstance(act, partial):
        act = act.func
    return "sessions" if isinstance(getattr(act, "__self__", None), StoredSession) else "memory"
