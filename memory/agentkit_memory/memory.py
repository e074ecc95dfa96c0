"""`Memory`: conversations, documents and facts in SQL, and an index for their recall."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from agentkit_memory.conversations.stored_session import StoredSession, visible_messages
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.ingest.ingest_options import IngestOptions
from agentkit_memory.ingest.report import IngestProgress, IngestReport
from agentkit_memory.process.async_methods import async_method
from agentkit_memory.scope import Scope, SharedScope, check_name
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

P = ParamSpec("P")
T = TypeVar("T")


class Memory(metaclass=Hinted):
    """Conversations, documents and facts of one scope.

    Without a user and a session, documents and facts are shared by the users of the tenant, and conversations belong to
    the user `local`.

    The constructor opens the memory in a folder, which is created if missing, or in a PostgreSQL database. Methods may
    be called from any thread. Close the memory, or use it as a context manager. For async code, methods such as
    `recall` have a second form with an `a`: `arecall`.

    Args:
        target: Folder of `memory.db` and `index/`, or a `postgresql://` URL.
        scope: Scope to read and write; a string is the name of a tenant.
        shared: Names of shared documents that recalls read too; `ingest(shared=NAME)` stores shared documents.
        index: Folder of the vector index, address of a Qdrant server (`http://...`) or of a PostgreSQL database, or
            opener of a custom index. By default `target/index` or, for a URL, the database `target`.
        embedder: Adds dense retrieval to BM25: an embedder with the name of its `model`, or the name of an embedder,
            such as `fastembed:BAAI/bge-small-en-v1.5`. A store uses a single model; `admin.reembed` changes it.
        timeout: Maximum seconds to wait for a lock of another process.
        clock: Function that returns the time, in seconds since 1970. No order depends on the clock.
        keep_recalls: Approximate number of newest recall logs to keep, in all scopes together; None for all, 0 for
            none. A log takes about 4 kB.

    Raises:
        StoreError: The store is locked, read-only, corrupt, newer than this code, or cannot be reached.
        InvalidArgument: An argument is invalid, or the scope has no tenant.
        EmbedderError: The store uses another model or BM25 alone; or the embedder has no `model` name, or fails to
            compute the first vector.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        *,
        scope: Scope | str = "local",
        shared: Iterable[str] = (),
        index: str | os.PathLike[str] | IndexOpener | None = None,
        embedder: Embedder | str | None = None,
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
        keep_recalls: int | None = 10_000,
    ) -> None:
        from agentkit_memory.admin.copy_folder import remove_copy
        from agentkit_memory.open_store import OpenStore

        self._scope = Scope.of(scope)
        self._shared = SharedScope.all_of(shared)
        self._store = OpenStore(target, index, embedder, timeout, clock, keep_recalls)
        self._has_admin = True
        remove_copy(self._store.database)

    @with_option_hints
    def within(self, scope: Scope | str, *, shared: Iterable[str] | None = None) -> Memory:
        """Return a memory of another scope in the same store, without `admin`. Closing either memory closes both.

        Args:
            scope: The scope; a string is the name of a tenant.
            shared: Names of shared documents that recalls read too; None: the same as this memory.
        """
        other = object.__new__(Memory)
        other._scope = Scope.of(scope)
        other._shared = self._shared
        if shared is not None:
            other._shared = SharedScope.all_of(shared)
        other._store = self._store
        other._has_admin = False
        return other

    @property
    def scope(self) -> Scope:
        """Scope that is read and written."""
        return self._scope

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of the shared documents that recalls read too."""
        return tuple([each.name for each in self._shared])

    @property
    def _reader(self) -> Scope:
        """Scope of conversations and recalls."""
        return self._scope.with_default_user()

    @property
    def admin(self) -> Admin:
        """Operations on all scopes of the store: verify, back up, restore, measure.

        Raises:
            InvalidArgument: This memory was returned by `within`: only the memory that was opened has `admin`.
        """
        from agentkit_memory.admin.admin import Admin

        if not self._has_admin:
            raise InvalidArgument(
                "admin: this memory is a handle of one scope, returned by `within`; for operations on the whole "
                "store, use the memory that `Memory(...)` opened",
                name="admin",
            )
        return Admin(self._store, self.scope)

    @with_option_hints
    def ingest(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        options: IngestOptions | None = None,
        shared: str | None = None,
        on_progress: Callable[[IngestProgress], None] | None = None,
    ) -> IngestReport:
        """Store text, Markdown, HTML, PDF and JSON lines files, and index them.

        A file whose content is stored already is skipped. The old content of a changed file is recalled until all of
        the new content is stored. The document of a file that was deleted from an ingested folder is removed. The call
        may be interrupted at any point and repeated. While another process owns the index, items are stored and queued
        for that process (`IngestReport.pending`).

        Args:
            paths: Files and folders. Named files may have any ending; in folders, files with known endings are read.
            options: Options for reading the files.
            shared: Name of shared documents to store the files in, instead of this scope: every memory of the store
                with this name in its `shared` reads these documents, and no erasure of a tenant removes them.
            on_progress: Called after every file, and repeatedly within a large file.

        Raises:
            InvalidArgument: The name of shared documents is invalid.
            IngestError: The paths or the options have the wrong type, or none of the paths exists. Files that cannot be
                read, and missing files among several paths, are in `IngestReport.errors`.
            StoreError: The database cannot be written.
        """
        owner: Scope | SharedScope = self.scope
        if shared is not None:
            owner = SharedScope.of(shared)
        return self._store.ingest(owner, paths, options, on_progress)

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
        """Return the chunks, turns and facts for a question, best first, from the scopes that this scope may read.

        A recall reads the current index, and waits a short time for the vector of the question. Items that are not
        indexed yet are found by their words; a thread of this memory indexes these items later, and writes the log. A
        part that fails is left out and reported in `Recall.degraded`; only the database is required.

        Args:
            query: The question, as text in any language.
            limit: Maximum number of documents and messages together, and maximum number of facts.
            policy: Policy of finding, scoring and choosing: a name in `POLICIES`, or a custom policy.
            session: The current conversation: its messages that the model receives anyway are not recalled.
            visible: Number of latest messages of the session that the model receives; by default all.
            now: The time of the question, to which "last week" is relative; by default the time of the clock.
            roles: Roles of the messages to return: `("user",)` leaves out the answers of the model. None for all roles.
            where: Conditions on the kind, source, time and metadata of the results.

        Raises:
            InvalidArgument: The query is not text, a number is out of range, or the policy or session is unknown.
            StoreError: The database cannot be read.
        """
        from agentkit_memory.recall.recall_filter import seconds
        from agentkit_memory.recall.recall_policy import named_policy
        from agentkit_memory.recall.recall_request import RecallRequest, check_question
        from agentkit_memory.recall.search import Sources, search

        check_question(query, limit, visible, now, roles, where)
        conversation, hidden = visible_messages(session, self._store.database, visible)
        store = self._store
        valid_at = store.database.clock()
        at = valid_at if now is None else seconds(now)
        how = named_policy(policy)
        shared = self._shared
        request = RecallRequest(
            self._reader, query, limit, how, at, valid_at, conversation, hidden, roles, where, shared
        )
        store.missing_documents.warn(self.scope, shared)
        with store.database.computing.hold() as permit:
            sources = Sources(store.indexes, store.embedders, store.logs, permit)
            recall, waits = search(sources, request)
        if waits:
            store.catch_up_later()
        return recall

    @with_option_hints
    def session(
        self,
        session_id: str,
        *,
        branch: str = "main",
        expires_at: float | None = None,
        load: bool = True,
        allow_media: bool = False,
    ) -> StoredSession:
        """Open a conversation of this scope, created if missing. An expired conversation is replaced by a new one.

        Without a user and a session in the scope, the conversation belongs to the user `local`.

        Args:
            session_id: Name of the conversation.
            branch: Name of the fork to open.
            expires_at: Time when it expires, in seconds since 1970: from then on it is not recalled, and
                `admin.expire` deletes it. `math.inf` for never; None does not change it.
            load: True to read the messages now; False to read only pages of a long conversation.
            allow_media: True to accept media in files of this machine and at addresses that are not public, in appended
                messages with the format of a provider. Leave it False for messages of other persons.

        Raises:
            InvalidArgument: A name is empty, too long or contains NUL, or the time is invalid.
            NotFound: The branch does not exist.
            StoreError: The database cannot be read or written.
        """
        from agentkit_memory.conversations.removal import open_branch
        from agentkit_memory.store.scope_rows import scope_id

        check_name("session id", session_id)
        check_name("branch", branch)
        if not session_id:
            raise InvalidArgument("a session id cannot be empty: name the conversation", name="session")
        scope_number = scope_id(self._store.database, self._reader)
        row = open_branch(self._store.database, scope_number, session_id, branch, expires_at)
        return StoredSession(row, self._reader, load=load, allow_media=allow_media)

    @with_option_hints
    def sessions(
        self, *, name: str | None = None, after: str = "", limit: int = 50, separate: bool = False
    ) -> tuple[SessionInfo, ...]:
        """Return the conversations that `session` opens, ordered by name, without opening them.

        Conversations of users are in the scopes of the users: see `within`, and `newest_sessions` for all users.

        Args:
            name: Name of the only conversation to return.
            after: Return names after this name, such as the last name of the previous page.
            limit: Maximum number of conversations.
            separate: True to return instead the conversations in separate scopes, `Scope(..., session=name)`, which a
                server opens for requests without a user.

        Raises:
            InvalidArgument: A name or the limit is invalid.
            StoreError: The database cannot be read.
        """
        from agentkit_memory.conversations.listing import sessions_of

        database = self._store.database
        return sessions_of(database, self._reader, name=name, after=after, limit=limit, separate=separate)

    def newest_sessions(self, *, limit: int = 50) -> tuple[tuple[str, str], ...]:
        """Return user and name of each conversation of this tenant and its users, the last used first.

        In the scope of a user, only conversations of that user are returned. Conversations of agents are left out.

        Args:
            limit: Maximum number of conversations.

        Raises:
            InvalidArgument: The limit is invalid.
            StoreError: The database cannot be read.
        """
        from agentkit_memory.conversations.listing import newest_sessions

        return newest_sessions(self._store.database, self.scope, limit=limit)

    @with_option_hints
    def delete_session(self, session_id: str) -> bool:
        """Delete a conversation of this scope with its forks, items and facts; return True if the conversation existed.

        Raises:
            InvalidArgument: The name is invalid.
        """
        from agentkit_memory.conversations.removal import delete_named

        check_name("session id", session_id)
        existed = delete_named(self._store.database, self._reader, session_id)
        self._store.catch_up_later()
        return existed

    @property
    def documents(self) -> Documents:
        """The documents of this scope: `add` texts, `list`, `get` and `forget` them and ingested files."""
        from agentkit_memory.ingest.given_documents import Documents

        return Documents(self._store.database, self.scope, self._store.catch_up_later)

    @with_option_hints
    def shared_documents(self, name: str) -> Documents:
        """Return shared documents of the store, to `add`, `list`, `get` and `forget` them; see `ingest`.

        Raises:
            InvalidArgument: The name is invalid.
        """
        from agentkit_memory.ingest.given_documents import Documents

        return Documents(self._store.database, SharedScope.of(name), self._store.catch_up_later)

    def missing_documents(self) -> list[str]:
        """Return warnings: the tenant of this scope reads no documents, although the store has documents of others.

        The first recall of a tenant logs these warnings. A shared name without documents is a warning too.
        """
        return self._store.missing_documents.problems(self.scope.tenant, self._shared)

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
        """Return the logs of recalls in this scope, oldest first; without a number, the newest logs.

        Args:
            after: Return the first logs after the log with this number.
            before: Return the last logs before the log with this number.
            limit: Maximum number of logs.

        Raises:
            StoreError: The database cannot be read, or queued logs cannot be written.
        """
        from agentkit_memory.store.scope_rows import known_ids

        self._store.database.deferred.settle()
        scopes = known_ids(self._store.database, self._reader)
        return self._store.logs.page(scopes, after=after, before=before, limit=limit)

    @with_option_hints
    def erase(self, subject: Scope | str) -> Erasure:
        """Remove everything that belongs to a subject, from SQL and from the index, and return the proof.

        The subject owns the scopes that have all its names: `Scope("acme", user="ada")` is Ada with all her sessions
        and agents, `"acme"` the whole tenant. Conversations, tool calls, documents, facts, recall logs and stored
        vectors are deleted, with facts of other scopes that were taken from them. If the erasure is interrupted, or
        another process owns the index, the next opening of the store resumes the erasure.

        Raises:
            InvalidArgument: The subject belongs to another tenant.
            StoreError: The database cannot be written; rows that were erased before stay erased.
        """
        from agentkit_memory.erasure.erase import erase
        from agentkit_memory.erasure.erased import checked_subject

        return erase(self._store.database, self._store.indexes, checked_subject(subject, self.scope))

    def was_erased(self, owner: Scope | str, since: float) -> bool:
        """True if an erasure of the owner was requested `since` a time, in seconds since 1970, or later. Programs with
        other data of the owner, such as journals, call this method before they use these data. Raises
        `InvalidArgument` if the time is invalid.
        """
        from agentkit_memory.erasure.erased import was_erased

        return was_erased(self._store.database, Scope.of(owner), since)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call any other function that uses the store from async code: `await memory.run(memory.admin.verify)`.

        The function runs in a thread of the store, so that the event loop is not blocked. Methods of a session run in
        separate threads, so that an append does not wait for recalls. If the caller is cancelled, a started call is
        finished first.
        """
        from agentkit_memory.open_store import pool_name

        return await self._store.database.threads[pool_name(function)].finish(function, *args, **kwargs)

    aingest, arecall, asession = async_method(ingest), async_method(recall), async_method(session)
    adelete_session, aerase = async_method(delete_session), async_method(erase)

    @property
    def _threads(self) -> Threads:
        return self._store.database.threads["memory"]

    @property
    def model(self) -> str:
        """Name of the embedding model of the store; empty for BM25 alone."""
        return self._store.indexes.active().model

    def worker(self, extract: Extract | None = None) -> BackgroundWorker:
        """Return a worker that keeps this store up to date for all its scopes; `with memory.worker():` runs threads.

        Args:
            extract: Extractor of facts from turns; `agentkit.memory.fact_extractor` creates an extractor from a model.
                Every turn is read once, including turns that were stored earlier.

        Raises:
            InvalidArgument: `extract` is not callable.
        """
        from agentkit_memory.background import BackgroundWorker

        return BackgroundWorker(self._store.database, self._store.indexes, extract)

    def close(self) -> None:
        """Close the database and the index. A second call does nothing."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
