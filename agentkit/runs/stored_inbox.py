"""`StoredInbox`: the messages of a stored run, for the attempt that executes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeAlias

from agentkit.ground.threads import in_thread
from agentkit.run.parts.run_inbox import SentMessage
from agentkit.runs.run_store import RunStore
from agentkit.runs.stored_attempt import Attempt

_Messages: TypeAlias = list[SentMessage]


class StoredInbox:
    """The messages that a stored run has not received yet.

    A query is sent only if the last stored line of the journal reported unread messages.

    Args:
        store: The store of the run.
        attempt: The attempt that executes the run.
        ask: Calls a function of the store in a thread.
    """

    __slots__ = ("_ask", "_attempt", "_store", "reason")

    def __init__(
        self,
        store: RunStore,
        attempt: Attempt,
        ask: Callable[[Callable[[], _Messages]], Awaitable[_Messages]] = in_thread,
    ) -> None:
        self._store, self._attempt, self._ask = store, attempt, ask
        self.reason = ""
        """Reason why the run is cancelled."""

    def attached(self, run_id: str) -> AbstractContextManager[object]:
        """Return a context manager without effect: the state of the run accepts or refuses messages."""
        return nullcontext()

    async def waiting(self, *, is_idle: bool) -> tuple[SentMessage, ...]:
        """Return the messages that the run receives now. The end of the attempt detects a later message."""
        if not self._attempt.unread:
            return ()
        unread = await self._ask(partial(self._store.messages.unread, self._attempt.run_id))
        return tuple([sent for sent in unread if is_idle or sent.when == "next_step"])

    def remove(self, received: tuple[SentMessage, ...]) -> None:
        """Do nothing: `RunStore.add_lines` marks the messages as received when it stores their line."""
