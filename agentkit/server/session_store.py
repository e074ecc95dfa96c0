"""`SessionStore`: the sessions of users, in a memory store or in this process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from agentkit.ground.threads import in_thread
from agentkit.run.parts.cancel_note import append_cancel_note
from agentkit.run.parts.session import Session, SessionProtocol
from agentkit.runs.run_record import RunRecord
from agentkit.server.owner import Owner
from agentkit.server.server_errors import Conflict, ServerFull, UnknownResource
from agentkit_memory import AlreadyUsed, HeadMoved, Memory, NotFound, Scope, StoredSession
from agentkit_memory.store.records import SessionInfo
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import MessageError

_MAX_OPEN = 8
"""Maximum number of stored sessions that stay open for readers."""


class SessionMessage(NamedTuple):
    """A message of a session and its number, from 1."""

    seq: int
    message: Message


@dataclass(slots=True)
class _LocalSession:
    session: Session
    created_at: float
    last_at: float | None = None


class SessionStore:
    """Opens, lists, forks and deletes sessions. Sync methods may wait for a disk: async code calls them in threads.

    Args:
        memory: Store of the sessions; None stores them in this process.
        limit: Maximum number of sessions of a tenant in this process.
    """

    def __init__(self, memory: Memory | None, limit: int) -> None:
        self.memory = memory
        self._max_local_sessions = limit
        self._local: dict[tuple[Owner, str], _LocalSession] = {}
        """Sessions of this process, if the server has no memory."""
        self._open: OrderedDict[tuple[Owner, str], StoredSession] = OrderedDict()
        """Open stored sessions; the most recently read session is last."""
        self._lock = Lock()

    def open(self, owner: Owner, name: str) -> SessionProtocol:
        """Return a session; start it if it is missing.

        Raises:
            ServerFull: The server has the maximum number of sessions.
            StoreError: The database cannot be read or written.
        """
        if self.memory is not None:
            return self._memory_of(owner, name).session(name)
        with self._lock:
            local = self._local.get((owner, name))
            if local is None:
                self._check_room(owner.tenant)
                local = self._local[owner, name] = _LocalSession(Session(name), time.time())
            local.last_at = time.time()
            return local.session

    async def add_cancel_note(self, record: RunRecord, reason: str) -> None:
        """Append the reason to the session of a cancelled run that no attempt executes, if both exist."""
        if reason and record.session is not None:
            open_session = partial(self.open, Owner(record.tenant, record.user), record.session)
            await in_thread(append_cancel_note, open_session, record.run_id, reason)

    def read(self, owner: Owner, name: str) -> SessionProtocol:
        """Return a session for reading. Recently read sessions stay open and load only new messages.

        Raises:
            UnknownResource: The owner has no session of this name.
            StoreError: The database cannot be read.
        """
        if self.memory is None:
            local = self._local.get((owner, name))
            if local is None:
                raise _unknown(name)
            return local.session
        try:
            # Not `session(name)`, which would start a session that does not exist.
            self.get(owner, name)
        except UnknownResource:
            self._drop(owner, name)
            raise
        session = self._refreshed(owner, name)
        if session is None:
            session = self._memory_of(owner, name).session(name)
            self._drop_deleted()
        # The messages are read outside of the lock: readers of other sessions do not wait for the database.
        with self._lock:
            self._open[owner, name] = session
            self._open.move_to_end((owner, name))
            while len(self._open) > _MAX_OPEN:
                self._open.popitem(last=False)
        return session

    def _refreshed(self, owner: Owner, name: str) -> StoredSession | None:
        """Return an open session with its newest messages; None if it is not open or was deleted."""
        with self._lock:
            session = self._open.get((owner, name))
        if session is None:
            return None
        try:
            session.refresh()
        except NotFound:
            # The session was deleted, or was deleted and started again.
            return None
        return session

    def page(self, owner: Owner, *, after: str = "", limit: int = 50) -> Sequence[SessionInfo]:
        """Return a page of the sessions of an owner, by name."""
        if self.memory is not None:
            memory = self.memory.within(Scope(owner.tenant, user=owner.user))
            return memory.sessions(after=after, limit=limit, separate=not owner.user)
        with self._lock:
            names = sorted(name for session_owner, name in self._local if session_owner == owner and name > after)[
                :limit
            ]
            return [_info(name, self._local[owner, name]) for name in names]

    def newest(self, owner: Owner, limit: int) -> Sequence[tuple[Owner, str]]:
        """Return the most recently used sessions; if `owner` has no user, of the tenant and all its users."""
        if self.memory is not None:
            rows = self.memory.within(Scope(owner.tenant, user=owner.user)).newest_sessions(limit=limit)
            return [(Owner(owner.tenant, user), name) for user, name in rows]
        with self._lock:
            sessions = [
                (local.last_at or local.created_at, session_owner, name)
                for (session_owner, name), local in self._local.items()
                if session_owner.tenant == owner.tenant and owner.user in ("", session_owner.user)
            ]
        return [(session_owner, name) for _, session_owner, name in sorted(sessions, reverse=True)[:limit]]

    def get(self, owner: Owner, name: str) -> SessionInfo:
        """Return the name, length and times of a session.

        Raises:
            UnknownResource: The owner has no session of this name.
        """
        if self.memory is not None:
            infos = self._memory_of(owner, name).sessions(name=name, limit=1)
            if not infos:
                raise _unknown(name)
            return infos[0]
        local = self._local.get((owner, name))
        if local is None:
            raise _unknown(name)
        return _info(name, local)

    def messages(self, owner: Owner, name: str, *, after: int = 0, limit: int = 50) -> Sequence[SessionMessage]:
        """Return at most `limit` messages of a session that follow message number `after`.

        Raises:
            UnknownResource: The owner has no session of this name.
        """
        self.get(owner, name)
        if self.memory is not None:
            page = self._memory_of(owner, name).session(name, load=False).page(after=after, limit=limit)
            return [SessionMessage(row.seq, row.message) for row in page]
        conversation = self.read(owner, name).conversation
        end = min(after + limit, len(conversation))
        return [SessionMessage(index + 1, conversation[index]) for index in range(after, end)]

    def delete(self, owner: Owner, name: str) -> None:
        """Delete a session with its index entries and facts.

        Raises:
            UnknownResource: The owner has no session of this name.
        """
        if self.memory is not None:
            is_deleted = self._memory_of(owner, name).delete_session(name)
            # Closed after the deletion: before the deletion, a concurrent reader could open the session again.
            self._drop(owner, name)
            if not is_deleted:
                raise _unknown(name)
            return
        with self._lock:
            if self._local.pop((owner, name), None) is None:
                raise _unknown(name)

    def fork(self, owner: Owner, name: str, new_name: str, at: int | None) -> SessionInfo:
        """Start a session with the first `at` messages of another session; None copies all messages.

        Raises:
            UnknownResource: The owner has no session of this name.
            Conflict: The new name is in use, the session has fewer messages, or `at` is between a tool call
                and its result.
            ServerFull: The server has the maximum number of sessions.
        """
        self.get(owner, name)
        source: Any = self.open(owner, name)
        if self._has(owner, new_name):
            raise _name_taken(new_name)
        if at is None:
            at = len(source.conversation)
        try:
            # An invalid `at` is refused here, before the new session is stored.
            conversation = source.conversation.until(at)
            if self.memory is None:
                self._add_local(owner, new_name, source.fork(new_name, at))
            else:
                self._add_stored(owner, new_name, conversation, source.additional_kwargs)
        except (MessageError, NotFound, AlreadyUsed) as error:
            raise Conflict(f"the session cannot be forked there: {error}", param="at") from error
        return self.get(owner, new_name)

    def _add_local(self, owner: Owner, name: str, session: Session) -> None:
        """Add a new session of this process."""
        with self._lock:
            # Checked again under the lock: another request can have started a session with this name.
            if (owner, name) in self._local:
                raise _name_taken(name)
            self._check_room(owner.tenant)
            self._local[owner, name] = _LocalSession(session, time.time(), time.time())

    def _add_stored(
        self, owner: Owner, name: str, conversation: Conversation, additional_kwargs: Mapping[str, Any]
    ) -> None:
        """Store a new session, unless another request or another server was first."""
        session = self._memory_of(owner, name).session(name)
        if session.conversation:
            raise _name_taken(name)
        try:
            session.append(*conversation)
        except HeadMoved as error:
            raise _name_taken(name) from error
        if additional_kwargs:
            session.keep_kwargs(additional_kwargs)

    def _has(self, owner: Owner, name: str) -> bool:
        try:
            self.get(owner, name)
        except UnknownResource:
            return False
        return True

    def _drop_deleted(self) -> None:
        """Close the sessions that another process deleted since they were read."""
        with self._lock:
            sessions = list(self._open.items())
        for (owner, name), session in sessions:
            try:
                session.refresh()
            except NotFound:
                self._drop(owner, name)

    def _drop(self, owner: Owner, name: str) -> None:
        """Close an open session."""
        with self._lock:
            self._open.pop((owner, name), None)

    def _check_room(self, tenant: str) -> None:
        # Only a new session is counted, so that a tenant cannot take the room of another tenant.
        count = sum(owner.tenant == tenant for owner, _ in self._local)
        if count >= self._max_local_sessions:
            raise ServerFull(
                f"the tenant {tenant!r} has the maximum of {self._max_local_sessions:,} sessions in this process: "
                "delete sessions, or serve with a store",
                code="too_many_sessions",
            )

    def _memory_of(self, owner: Owner, name: str) -> Memory:
        """Return the memory with a session of an owner."""
        assert self.memory is not None
        return self.memory.within(owner.scope(name))


def _info(name: str, local: _LocalSession) -> SessionInfo:
    return SessionInfo(name, len(local.session.conversation), local.created_at, local.last_at)


def _name_taken(name: str) -> Conflict:
    return Conflict(f"the session {name!r:.80} already exists: choose another name", param="name")


def _unknown(name: str) -> UnknownResource:
    return UnknownResource(f"unknown session {name!r:.80}", code="session_not_found")
