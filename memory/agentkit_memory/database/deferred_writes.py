"""`DeferredWrites`: a queue of small writes, such as recall logs, that a thread writes in batches."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from threading import Condition
from typing import TypeAlias

from sqlalchemy import Connection

from agentkit_memory.errors import StoreClosed, StoreError, StoreUnavailable
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.process.forks import track
from agentkit_memory.process.on_demand import OnDemand

Prepare: TypeAlias = Callable[[], Callable[[Connection], None]]
"""Function that prepares a write without the database, and returns a function that writes with a connection."""

_LOG = logging.getLogger("agentkit.memory")
_BATCH = 256
"""Maximum writes in one transaction."""
_GATHER = 1.0
"""Seconds to collect writes for a transaction: after each transaction, readers of SQLite read their cached pages again.
"""
_MAX_WAITING = 4096
"""Maximum queued writes while the database cannot be written; the oldest writes above this number are dropped."""


class DeferredWrites:
    """A queue of writes. If the process is killed, the writes of the last second (`_GATHER`) are lost."""

    def __init__(self, change: Callable[[Callable[[Connection], None]], None]) -> None:
        """`change` calls a function with a connection in a transaction."""
        self._change = change
        self._changed = Condition()
        self._waiting: deque[Prepare] = deque()
        self._added = self._done = 0
        self._tried, self._trying = 0, False
        self._thread = OnDemand("agentkit-memory-writes", self._pass, gather_seconds=_GATHER)
        self.problem: StoreError | None = None
        """Error of the last try; None if it succeeded."""
        track(self)

    def add(self, prepare: Prepare) -> None:
        """Queue a write. Its errors are logged."""
        with self._changed:
            self._waiting.append(prepare)
            self._added += 1
            if len(self._waiting) > _MAX_WAITING:
                self._waiting.popleft()
                self._done += 1
        self._thread.wake()

    def settle(self) -> None:
        """Wait until the writes that were queued before this call are written.

        Raises:
            StoreError: The writes failed. They stay queued, and a later call tries again.
        """
        with self._changed:
            added = self._added
            needed_tries = self._tried + 1
            # A running try may have started before the newest writes were queued.
            if self._trying:
                needed_tries += 1
            while self._done < added:
                if self._tried >= needed_tries and self.problem is not None:
                    raise self.problem
                self._thread.wake(hurry=True)
                self._changed.wait(0.2)

    def close(self, seconds: float) -> None:
        """Write the queue, for at most `seconds`."""
        if self._waiting and self.problem is None:
            with self._changed:
                self._thread.wake(hurry=True)
                self._changed.wait_for(lambda: self._done >= self._added or self.problem is not None, seconds)
        self._thread.stop(seconds)

    def disown(self, why: str) -> None:
        """Leave the queue to the parent process, after a fork."""
        self._changed, self._waiting = Condition(), deque()
        self._added = self._done = 0
        self._trying = False

    def _pass(self) -> bool:
        """Write the queue in batches until it is empty or a write fails; return False: no more work can be done now."""
        while self._write_batch():
            pass
        return False

    def _write_batch(self) -> bool:
        """Write a batch; return True if another batch can be written now."""
        with self._changed:
            batch = list(islice(self._waiting, _BATCH))
            self._trying = True
        problem = self._write_all(batch)
        with self._changed:
            self.problem = problem
            self._tried, self._trying = self._tried + 1, False
            if problem is None:
                for each in batch:
                    # The write may have been dropped from a full queue meanwhile.
                    if self._waiting and self._waiting[0] is each:
                        self._waiting.popleft()
                        self._done += 1
            self._changed.notify_all()
            return problem is None and bool(self._waiting)

    def _write_all(self, batch: Sequence[Prepare]) -> StoreError | None:
        """Write a batch in one transaction or, if that fails, each write alone; return an error that allows a retry."""
        try:
            writes = [each() for each in batch]
            failpoint("deferred.prepared")

            def write_all(connection: Connection) -> None:
                for write in writes:
                    write(connection)
                failpoint("deferred.written")

            self._change(write_all)
            failpoint("deferred.committed")
        except StoreUnavailable as error:
            # The same write may succeed later.
            return error
        # Nothing can be written to a closed store: the batch is dropped.
        except StoreClosed:
            return None
        except Exception as error:
            if len(batch) == 1:
                _LOG.warning("a deferred write failed and is dropped: %s: %s", type(error).__name__, error)
                return None
            for each in batch:
                if (problem := self._write_all([each])) is not None:
                    return problem
        return None
