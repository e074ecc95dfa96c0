"""`LiveRun`: a run of this process: its task, and the events it has had since it began or went on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from agentkit.ground.threads import in_thread
from agentkit.runs.run_record import RunEvent, RunRecord
from agentkit.runs.run_store import Attempt, RunStore
from agentkit.server.served_runs.event_form import event_form

__all__ = ["LiveRun"]

_log = logging.getLogger("agentkit.server")


class LiveRun:
    """A run that goes on.

    Args:
        record: The run.
        store: Where its events are kept.
        base: The number of the last event it had before.
    """

    __slots__ = (
        "_more",
        "_store",
        "_writing",
        "_written",
        "attempt",
        "base",
        "events",
        "is_cancelled",
        "record",
        "task",
    )

    def __init__(self, record: RunRecord, store: RunStore, base: int) -> None:
        self.record = record
        self.base = base
        self.attempt: Attempt | None = None
        """What may store something of it, once it has begun."""
        self.events: list[RunEvent] = []
        self.task: asyncio.Task[None] | None = None
        self.is_cancelled = False
        """Whether a client cancelled it, as opposed to a server that stops."""
        self._store = store
        self._written = 0
        self._writing: asyncio.Task[None] | None = None
        self._more = asyncio.Event()

    def heard(self, event: Any) -> None:
        """Add an event of the run itself."""
        self.add(*event_form(event))

    def add(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add an event; it is kept soon, together with those that come meanwhile."""
        self.events.append(RunEvent(self.base + len(self.events) + 1, kind, data))
        self.wake()
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def after(self, seq: int) -> list[RunEvent]:
        """Return the events behind a number, which is not below `base`."""
        return self.events[seq - self.base :]

    def wake(self) -> None:
        """Wake those who wait for something to happen."""
        self._more.set()
        self._more = asyncio.Event()

    async def more(self) -> None:
        """Wait until something happens."""
        await self._more.wait()

    async def written(self) -> None:
        """Wait until all events so far are kept."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        while fresh := self.events[self._written :]:
            self._written += len(fresh)
            try:
                await in_thread(self._store.events.add, self.record.run_id, fresh)
            except Exception:
                _log.exception("run %s: events could not be stored", self.record.run_id)
