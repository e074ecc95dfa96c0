"""`BackgroundWorker`: makes messages recallable, indexes items, and extracts facts, in threads.

Any number of workers, in any number of processes, may run at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, Self

from agentkit_memory.errors import IndexUnavailable, InvalidArgument, StoreClosed
from agentkit_memory.process.forks import track

if TYPE_CHECKING:
    from agentkit_memory.database.engine import Database
    from agentkit_memory.facts.drafts import Extract
    from agentkit_memory.index.index_worker import IndexWorker
    from agentkit_memory.index.indexes import Indexes

__all__ = ["BackgroundWorker"]

_LOG = logging.getLogger("agentkit.memory")

_MAX_MESSAGES = 500
"""Maximum messages that become items at once."""
_PATIENCE = 5.0
"""Maximum seconds that `drain` waits for items that other workers have leased."""
_FAILED, _CLOSED = -1, -2
_PAUSE = 5.0
"""Seconds to wait after an error."""


class BackgroundWorker:
    """Keeps a memory up to date: `with memory.worker():`, or `memory.worker().drain()` from time to time.

    In a `with` statement it works in separate threads, one for each part, since models are slow. Errors are logged, and
    failed work is tried again. Without a worker, the memory itself does the waiting work on turns and the index after a
    recall.
    """

    def __init__(self, database: Database, indexes: Indexes, extract: Extract | None = None) -> None:
        self._database = database
        self._indexes = indexes
        self._index: tuple[str, IndexWorker] | None = None
        self._stop = Event()
        self._threads: list[Thread] = []
        track(self)
        self._parts: dict[str, Callable[[], int]] = {"turns": self._turns, "index": self._point}
        self.problems: dict[str, str] = {}
        """The last error of each part of the work (`turns`, `index`, `facts`), until it succeeds."""
        if extract is not None:
            if not callable(extract):
                raise InvalidArgument(
                    "worker: expected an extractor, a function of turns and known facts that returns drafts of facts, "
                    f"got {extract!r}",
                    name="extract",
                )
            from agentkit_memory.facts.fact_worker import FactWorker

            self._parts["facts"] = FactWorker(database, extract).run_once

    def drain(self) -> int:
        """Do all pending work in this thread; return the number of processed messages and items.

        Failed items that wait for their next try are left out.

        Raises:
            IndexUnavailable: Another process owns the index, and will index the items. All other work was done.
            StoreError: The database cannot be read or written.
        """
        total = 0
        # Facts are extracted from turns, and the index needs both.
        for name in ("turns", "facts", "index"):
            part = self._parts.get(name)
            while part is not None and (done := part()):
                total += done
        until = time.monotonic() + _PATIENCE
        while self._index is not None and self._index[1].others and time.monotonic() < until:
            # Another worker has leased some items.
            time.sleep(0.005)
            total += self._point()
        return total

    def run(self, stop: Event, idle: float = 0.2) -> None:
        """Work in this thread until `stop` is set; without work, wait `idle` seconds."""
        self._run(stop, idle, tuple(self._parts))

    def step(self, name: str) -> bool:
        """Do a batch of one part of the work; return True if more work may be left. An error is logged."""
        return self._try(name) > 0

    def start(self, idle: float = 0.2) -> None:
        """Start the threads, if they do not run."""
        if self._threads:
            return
        self._stop = Event()
        for part in self._parts:
            name = f"agentkit-memory-{part}"
            thread = Thread(target=self._run, args=(self._stop, idle, (part,)), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop the threads after their current batch or call of a model."""
        self._stop.set()
        while self._threads:
            self._threads.pop().join()

    def disown(self, why: str) -> None:
        """Forget the threads, which exist in the parent of this process only."""
        self._stop = Event()
        self._threads = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, stop: Event, idle: float, names: Sequence[str]) -> None:
        while not stop.is_set():
            done, failed = 0, False
            for name in names:
                count = self._try(name)
                if count == _CLOSED:
                    return
                done, failed = done + max(0, count), failed or count < 0
            if failed:
                stop.wait(max(idle, _PAUSE))
            elif not done:
                stop.wait(idle)

    def _try(self, name: str) -> int:
        """Do a batch; return the number of its items, or `_FAILED`, or `_CLOSED`."""
        try:
            done = self._parts[name]()
            self.problems.pop(name, None)
            return done
        except StoreClosed:
            return _CLOSED
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # A panic of a model is not an `Exception`.
            level = logging.WARNING
            if isinstance(error, IndexUnavailable) and error.owned:
                # Another process indexes the items, so no work is lost.
                level = logging.INFO
            self._report(name, error, level)
        return _FAILED

    def _report(self, name: str, error: BaseException, level: int) -> None:
        problem = f"{type(error).__name__}: {error}"
        if self.problems.get(name) != problem:
            self.problems[name] = problem
            _LOG.log(level, "memory worker, %s: %s", name, problem)

    def _turns(self) -> int:
        from agentkit_memory.conversations.turns import itemise

        return itemise(self._database, None, _MAX_MESSAGES)

    def _point(self) -> int:
        """Index some items, in the active space."""
        space = self._indexes.active()
        try:
            if self._index is None or self._index[0] != space.name:
                self._index = space.name, self._indexes.worker(space)
            worker = self._index[1]
            done = worker.run_once()
            if not done and not worker.others:
                self._indexes.check_again(space)
            return done
        except IndexUnavailable:
            # Another process built the index again: it may be free to open now.
            self._index = None
            raise
        except StoreClosed:
            self._index = None
            if self._indexes.closed:
                raise
            # The model was changed, and the index of the old model was dropped.
            return 0
