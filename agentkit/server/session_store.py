"""`SessionStore`: the conversations of users, in the memory of the server, or in this process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

from agentkit.run.parts.session import Session, SessionProtocol
from agentkit.server.server_errors import Conflict, ServerFull, UnknownResource
from agentkit_memory import AlreadyUsed, Memory, NotFound, Scope, StoredSession
from agentkit_memory.store.records import SessionInfo
from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import MessageError

__all__ = ["Owner", "SessionMessage", "SessionStore"]

_MAX_READ = 8
"""Stored conversations that stay open for whoever reads them again."""


class Owner(NamedTuple):
    """Whose conversation it is: a tenant, and a user of it."""

    tenant: str
    user: str = ""


class SessionMessage(NamedTuple):
    """A message of a conversation, and its number, from 1."""

    seq: int
    message: Message


@dataclass(slots=True)
class _Kept:
    session: Session
    created_at: float
    last_at: float | None = None


class SessionStore:
    """Opens conversations. Methods may wait for a disk: async code calls them in threads.

    Args:
        memory: Where they are kept; None keeps them as long as the process lives.
        most: How many of them then.
    """

    def __init__(self, memory: Memory | None, most: int) -> None:
        self.memory = memory
        self._most = most
        self._kept: dict[tuple[Owner, str], _Kept] = {}
        self._read: OrderedDict[tuple[Owner, str], StoredSession] = OrderedDict()
        """Those that were read last, the newest at the end."""
        self._lock = Lock()

    def open(self, owner: Owner, name: str) -> SessionProtocol:
        """Return a conversation, begun if missing.

        Raises:
            ServerFull: There are as many as may be kept.
            StoreError: The database cannot be read or written.
        """
        if self.memory is not None:
            return self._within(owner).session(name)
        with self._lock:
            known = self._kept.get((owner, name))
            if known is None:
                self._check_room()
                known = self._kept[owner, name] = _Kept(Session(name), time.time())
            known.last_at = time.time()
            return known.session

    def read(self, owner: Owner, name: str) -> SessionProtocol:
        """Return a conversation as it is now, only to be read: those that were read last are not read again.

        Raises:
            UnknownResource: The owner has none of that name.
            StoreError: The database cannot be read.
        """
        if self.memory is None:
            if (kept := self._kept.get((owner, name))) is None:
                raise _unknown(name)
            return kept.session
        try:
            self.get(owner, name)
        except UnknownResource:
            self._drop(owner, name)
            raise
        with self._lock:
            found = self._read.get((owner, name))
        try:
            if found is not None:
                found.refresh()
        except NotFound:  # it was deleted, and another one has its name now
            found = None
        if found is None:
            found = self._within(owner).session(name)
            self._drop_deleted()
        with self._lock:
            self._read[owner, name] = found
            self._read.move_to_end((owner, name))
            while len(self._read) > _MAX_READ:
                self._read.popitem(last=False)
        return found

    def page(self, owner: Owner, *, after: str = "", limit: int = 50) -> Sequence[SessionInfo]:
        """Return the conversations of an owner, by name."""
        if self.memory is not None:
            return self._within(owner).sessions(after=after, limit=limit)
        with self._lock:
            names = sorted(name for whose, name in self._kept if whose == owner and name > after)[:limit]
            return [_info(name, self._kept[owner, name]) for name in names]

    def newest(self, owner: Owner, limit: int) -> Sequence[tuple[Owner, str]]:
        """Return the conversations used last, the newest first; of a tenant, also those of its users."""
        if self.memory is not None:
            found = self._within(owner).newest_sessions(limit=limit)
            return [(Owner(owner.tenant, user), name) for user, name in found]
        with self._lock:
            mine = [
                (kept.last_at or kept.created_at, whose, name)
                for (whose, name), kept in self._kept.items()
                if whose.tenant == owner.tenant and owner.user in ("", whose.user)
            ]
        return [(whose, name) for _, whose, name in sorted(mine, reverse=True)[:limit]]

    def get(self, owner: Owner, name: str) -> SessionInfo:
        """Return what there is to know of a conversation.

        Raises:
            UnknownResource: The owner has none of that name.
        """
        if self.memory is not None:
            found = next(iter(self._within(owner).sessions(name=name, limit=1)), None)
        else:
            kept = self._kept.get((owner, name))
            found = None if kept is None else _info(name, kept)
        if found is None:
            raise _unknown(name)
        return found

    def messages(self, owner: Owner, name: str, *, after: int = 0, limit: int = 50) -> Sequence[SessionMessage]:
        """Return the first messages of a conversation behind number `after`.

        Raises:
            UnknownResource: The owner has no such conversation.
        """
        self.get(owner, name)
        if self.memory is not None:
            page = self._within(owner).session(name, load=False).page(after=after, limit=limit)
            return [SessionMessage(one.seq, one.message) for one in page]
        conversation = self._kept[owner, name].session.conversation
        return [SessionMessage(at + 1, conversation[at]) for at in range(after, min(after + limit, len(conversation)))]

    def delete(self, owner: Owner, name: str) -> None:
        """Delete a conversation, and all that was made of it.

        Raises:
            UnknownResource: The owner has no such conversation.
        """
        if self.memory is not None:
            is_deleted = self._within(owner).delete_session(name)
            self._drop(owner, name)  # behind the deletion: whoever reads meanwhile would keep it
            if not is_deleted:
                raise _unknown(name)
            return
        with self._lock:
            if self._kept.pop((owner, name), None) is None:
                raise _unknown(name)

    def fork(self, owner: Owner, name: str, to: str, at: int | None) -> SessionInfo:
        """Begin another conversation with the first `at` messages of this one; with all where it is None.

        Raises:
            UnknownResource: The owner has no such conversation, or it has fewer messages.
            Conflict: There is a conversation of the new name, or tool calls would be cut from their results.
            ServerFull: There are as many as may be kept.
        """
        self.get(owner, name)
        source: Any = self.open(owner, name)
        try:
            self.get(owner, to)
        except UnknownResource:
            pass
        else:
            raise Conflict(f"there is a conversation {to!r:.80} already: choose another name", param="name")
        try:
            conversation = source.conversation.until(len(source.conversation) if at is None else at)
            if self.memory is not None:
                made = self._within(owner).session(to)
                made.append(*conversation)
                if source.additional_kwargs:
                    made.keep_kwargs(source.additional_kwargs)
            else:
                made_here = source.fork(to, at)
                with self._lock:
                    self._check_room()
                    self._kept[owner, to] = _Kept(made_here, time.time(), time.time())
        except (MessageError, NotFound, AlreadyUsed) as error:
            raise Conflict(f"it cannot be forked there: {error}", param="at") from error
        return self.get(owner, to)

    def _drop_deleted(self) -> None:
        """Close the conversations that another process deleted since they were read."""
        with self._lock:
            known = list(self._read.items())
        for (owner, name), session in known:
            try:
                session.refresh()
            except NotFound:
                self._drop(owner, name)

    def _drop(self, owner: Owner, name: str) -> None:
        """Close a conversation that stays open for readers."""
        with self._lock:
            self._read.pop((owner, name), None)

    def _check_room(self) -> None:
        if len(self._kept) >= self._most:
            raise ServerFull(
                f"the server keeps {self._most:,} conversations in memory, and no more: delete some, or serve with a "
                "store",
                code="too_many_sessions",
            )

    def _within(self, owner: Owner) -> Memory:
        assert self.memory is not None
        return self.memory.within(Scope(owner.tenant, user=owner.user))


def _info(name: str, kept: _Kept) -> SessionInfo:
    return SessionInfo(name, len(kept.session.conversation), kept.created_at, kept.last_at)


def _unknown(name: str) -> UnknownResource:
    return UnknownResource(f"there is no session {name!r:.80}", code="session_not_found")
