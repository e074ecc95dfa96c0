"""`BackgroundWorker`: what memory does behind the back of its users, in threads that end when they are told to.

What was said becomes recallable, what is written is indexed, and facts are taken from what was said. Any number of
workers, in any number of processes, may do it at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Self

from agentkit_memory.errors import ExtractionError, IndexBusy, StoreClosed
from agentkit_memory.process.forks import track

if TYPE_CHECKING:
    from agentkit_memory.facts.drafts import Extract
    from agentkit_memory.index.index_worker import Worker
    from agentkit_memory.index.indexes import Indexes
    from agentkit_memory.store.engine import Database

__all__ = ["BackgroundWorker"]

_LOG = logging.getLogger("agentkit.memory")

_MESSAGES = 500
"""Looked at in one go, to become items."""
_PATIENCE = 5.0
"""Seconds to wait after something went wrong."""


class BackgroundWorker:
    """Keeps a memory up to date: `with memory.worker():`, or `memory.worker().drain()` now and then.

    In a `with` statement it works in threads of its own: one for turns and the index, one for facts, since a model is
    slow. They outlive every trouble of the store: it is logged, and what could not be done is tried again.
    """

    def __init__(self, database: Database, indexes: Indexes, extract: Extract | None = None) -> None:
        self._database = database
        self._indexes = indexes
        self._index: tuple[str, Worker] | None = None
        self._stop = Event()
        self._threads: list[Thread] = []
        track(self)
        self._facts: Callable[[], int] | None = None
        self.problems: dict[str, str] = {}
        """What each part of the work last failed with, if it was not done since: by `turns`, `index`, `facts`."""
        if extract is not None:
            if not callable(extract):
                raise ExtractionError(
                    "worker: expected an extractor, a function of turns and known facts that returns drafts of facts, "
                    f"got {extract!r}"
                )
            from agentkit_memory.facts.fact_worker import FactWorker

            self._facts = FactWorker(database, extract).run_once

    def drain(self) -> int:
        """Do in this thread what there is to do now; return how many messages and items were looked at.

        What failed before and is to be tried later is left to later.

        Raises:
            IndexBusy: Another process owns the index, and will index it. Everything else was done.
            StoreError: The database cannot be read or written.
        """
        total = 0
        for part in (self._turns, self._facts, self._point):
            while part is not None and (done := part()):
                total += done
        return total

    def run(self, stop: Event, idle: float = 0.2) -> None:
        """Work in this thread until `stop` is set, looking again every `idle` seconds when there is nothing to do."""
        self._run(stop, idle, ("turns", "index", "facts"))

    def start(self, idle: float = 0.2) -> None:
        """Begin to work in threads. Starting what has started changes nothing."""
        if self._threads:
            return
        self._stop = Event()
        together: list[tuple[str, ...]] = [("turns", "index")]
        if self._facts is not None:
            together.append(("facts",))
        for parts in together:
            name = f"agentkit-memory-{'-'.join(parts)}"
            thread = Thread(target=self._run, args=(self._stop, idle, parts), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the threads, and wait for what they are doing: at most one batch, or one call of a model."""
        self._stop.set()
        while self._threads:
            self._threads.pop().join()

    def disown(self, why: str) -> None:
        """Leave the threads to the parent of this process: here are none."""
        self._stop = Event()
        self._threads = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()

    def _run(self, stop: Event, idle: float, names: Sequence[str]) -> None:
        parts = {"turns": self._turns, "index": self._point, "facts": self._facts}
        while not stop.is_set():
            done, failed = 0, False
            for name in names:
                part = parts[name]
                if part is None:
                    continue
                try:
                    done += part()
                    self.problems.pop(name, None)
                except StoreClosed:
                    return
                except IndexBusy as error:
                    self._told(name, error, logging.INFO)  # its owner does the work: that is nothing to mend
                    failed = True
                except Exception as error:
                    self._told(name, error, logging.WARNING)
                    failed = True
            if failed:
                stop.wait(max(idle, _PATIENCE))
            elif not done:
                stop.wait(idle)

    def _told(self, name: str, error: Exception, level: int) -> None:
        said = f"{type(error).__name__}: {error}"
        if self.problems.get(name) != said:
            self.problems[name] = said
            _LOG.log(level, "memory worker, %s: %s", name, said)

    def _turns(self) -> int:
        from agentkit_memory.conversations.turns import itemise

        return itemise(self._database, None, _MESSAGES)

    def _point(self) -> int:
        """Index some items, in the space that is read now."""
        space = self._indexes.active()
        try:
            if self._index is None or self._index[0] != space.name:
                self._index = space.name, self._indexes.worker(space)
            return self._index[1].run_once()
        except IndexBusy:  # somebody built the index anew: it may be ours to open again
            self._index = None
            raise
        except StoreClosed:
            self._index = None
            if self._indexes.closed:
                raise
            return 0  # another model is read now, and the index of the old one was dropped
