"""`BackgroundWorker`: turns messages into items, indexes items and extracts facts, in threads.

Any number of workers, in any number of processes, may run at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from threading import Event, Thread
from typing import TYPE_CHECKING, Self

from agentkit_memory.errors import IndexUnavailable, InvalidArgument, StoreClosed, StoreError
from agentkit_memory.process.forks import track
from agentkit_memory.store.outbox import WORTH_INDEXING

if TYPE_CHECKING:
    from agentkit_memory.database.engine import Database
    from agentkit_memory.facts.drafts import Extract
    from agentkit_memory.index.index_worker import IndexWorker
    from agentkit_memory.index.indexes import Indexes

_LOG = logging.getLogger("agentkit.memory")

_MAX_MESSAGES = 500
"""Maximum number of messages that become items in one batch."""
_MAX_LEASE_WAIT = 5.0
"""Maximum seconds that `drain` waits for items which other workers have leased."""
_FAILED, _CLOSED = -1, -2
"""Results of `_try` that are no number of items."""
_PAUSE = 5.0
"""Seconds to wait after an error."""


class BackgroundWorker:
    """Keeps a memory up to date: `with memory.worker():`, or `memory.worker().drain()` from time to time.

    In a `with` statement, each part of the work (`turns`, `index`, `facts`) has a thread, since models are slow. Errors
    are logged, and failed work is tried again. Without a worker, threads of the memory process turns and the index
    after changes and recalls, and facts are not extracted.
    """

    def __init__(self, database: Database, indexes: Indexes, extract: Extract | None = None) -> None:
        self._database = database
        self._indexes = indexes
        self._index_worker: tuple[str, IndexWorker] | None = None
        """Name of the active space, and the worker of its index; None until items are indexed."""
        self._stop = Event()
        self._threads: list[Thread] = []
        track(self)
        self._parts: dict[str, Callable[[], int]] = {"turns": self._itemise, "index": self._index}
        self.problems: dict[str, str] = {}
        """The last error of each part of the work; a part that succeeds is removed."""
        if extract is not None:
            # Each turn would fail, and would be tried again for ever.
            is_async = any(map(iscoroutinefunction, (extract, type(extract).__call__)))
            if not callable(extract) or is_async:
                raise InvalidArgument(
                    "worker: expected an extractor, a sync function of turns and known facts that returns drafts of "
                    f"facts, got {extract!r}",
                    name="extract",
                )
            from agentkit_memory.facts.fact_worker import FactWorker

            self._parts["facts"] = FactWorker(database, extract).run_once

    def drain(self) -> int:
        """Do all pending work in this thread; return the number of processed messages and items.

        The work is done in rounds, so that the outbox of a long backlog stays small. Failed items are skipped until
        their next try is due.

        Raises:
            IndexUnavailable: Another process owns the index, and will index the items. All other work was done.
            StoreError: The database cannot be read or written.
        """
        total = 0
        problem: StoreError | None = None
        while True:
            # In this order: facts are extracted from turns, and both are indexed.
            done = self._do("turns", WORTH_INDEXING) + self._do("facts")
            if problem is None:
                try:
                    done += self._do("index")
                except StoreError as error:
                    problem = error
            total += done
            if not done:
                break
        if problem is not None:
            raise problem
        deadline = time.monotonic() + _MAX_LEASE_WAIT
        while self._index_worker is not None and self._index_worker[1].others and time.monotonic() < deadline:
            # Another worker has leased some items.
            time.sleep(0.005)
            total += self._index()
        return total

    def _do(self, name: str, most: int | None = None) -> int:
        """Do one part of the work, up to about `most` messages or items; return their number."""
        part, total = self._parts.get(name), 0
        while part is not None and (most is None or total < most):
            done = part()
            if not done:
                break
            total += done
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
        """Forget the threads after a fork: they run only in the parent process."""
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
        """Process a batch of one part; return the number of items, or `_FAILED`, or `_CLOSED`."""
        try:
            done = self._parts[name]()
            self.problems.pop(name, None)
            return done
        except StoreClosed:
            return _CLOSED
        except (KeyboardInterrupt, SystemExit):
            raise
        # A panic of a library in Rust, such as a tokenizer, is not an `Exception`.
        except BaseException as error:
            level = logging.WARNING
            if isinstance(error, IndexUnavailable) and error.owned:
                # The process that owns the index will index the items.
                level = logging.INFO
            problem = f"{type(error).__name__}: {error}"
            if self.problems.get(name) != problem:
                self.problems[name] = problem
                _LOG.log(level, "memory worker, %s: %s", name, problem)
        return _FAILED

    def _itemise(self) -> int:
        from agentkit_memory.conversations.turns import itemise

        return itemise(self._database, None, _MAX_MESSAGES)

    def _index(self) -> int:
        """Index a batch of items in the active space; return their number."""
        space = self._indexes.active()
        try:
            if self._index_worker is None or self._index_worker[0] != space.name:
                self._index_worker = space.name, self._indexes.worker(space)
            worker = self._index_worker[1]
            done = worker.run_once()
            if not done and not worker.others:
                self._indexes.check_again(space)
            return done
        except IndexUnavailable:
            # If another process rebuilt the index, the next batch opens the new index.
            self._index_worker = None
            raise
        except StoreClosed:
            self._index_worker = None
            if self._indexes.closed:
                raise
            # The model was changed, and the index of the old model was dropped.
            return 0
