"""`LiveRun`: a running or queued run of this process with its task and its events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from agentkit.ground.threads import in_thread
from agentkit.run.engine.events import RunFinished
from agentkit.runs.run_record import RunEvent, RunRecord
from agentkit.runs.run_store import RunStore
from agentkit.runs.stored_attempt import Attempt
from agentkit.runs.stored_inbox import StoredInbox
from agentkit.server.served_runs.event_form import event_form

_log = logging.getLogger("agentkit.server")


class LiveRun:
    """A running or queued run with the events since it was started or resumed.

    Args:
        record: The run.
        store: Store of its events.
        base: Number of its last event before.
    """

    __slots__ = (
        "_changed",
        "_store",
        "_writing",
        "_written",
        "attempt",
        "base",
        "events",
        "inbox",
        "is_cancelled",
        "last",
        "reason",
        "record",
        "task",
    )

    def __init__(self, record: RunRecord, store: RunStore, base: int) -> None:
        self.record = record
        self.base = base
        self.attempt: Attempt | None = None
        """The attempt that executes the run, once it has started."""
        self.events: list[RunEvent] = []
        self.task: asyncio.Task[None] | None = None
        self.is_cancelled = False
        """True if a client cancelled the run; False if the server cancels it to stop."""
        self.reason = ""
        """Reason of the cancellation."""
        self.inbox: StoredInbox | None = None
        """Messages to the run, once its agent runs."""
        self.last: RunEvent | None = None
        """The last event, which is stored together with the outcome of the run."""
        self._store = store
        self._written = 0
        """Number of stored events."""
        self._writing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def on_event(self, event: Any) -> None:
        """Add an event of the agent. Its end is the last event, unless a message arrives before the end is stored."""
        kind, data = event_form(event)
        if isinstance(event, RunFinished):
            self.end_with(kind, data)
        else:
            self.add(kind, data)

    def end_with(self, kind: str, data: Mapping[str, Any]) -> None:
        """Set the last event, which `add_last` adds."""
        self.last = RunEvent(self.base + len(self.events) + 1, kind, data)

    def add_last(self, *, is_stored: bool) -> None:
        """Add the last event, after the outcome of the run was stored, or could not be stored."""
        if self.last is None:
            return
        if is_stored:
            self._written += 1
            self.events.append(self.last)
            self.notify()
        else:
            self.add(self.last.kind, self.last.data)

    def add(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add an event. A task stores it soon, together with other new events."""
        self.events.append(RunEvent(self.base + len(self.events) + 1, kind, data))
        self.notify()
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def after(self, seq: int) -> list[RunEvent]:
        """Return the events after a number, which is at least `base`."""
        return self.events[seq - self.base :]

    def notify(self) -> None:
        """Wake all callers of `wait_change`."""
        # A new event: callers that start to wait now must wait for the next change.
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_change(self) -> None:
        """Wait for an event, the start of the task, or the end of the run."""
        await self._changed.wait()

    async def wait_written(self) -> None:
        """Wait until the current events are stored."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        while events := self.events[self._written :]:
            # Counted before the write: events that could not be stored are not retried forever.
            self._written += len(events)
            try:
                await in_thread(self._store.events.add, self.record.run_id, events)
            except Exception:
                _log.exception("run %s: events could not be stored", self.record.run_id)
