"""`DeferredWrites`: small writes in the background, such as logs, many in one transaction."""

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

__all__ = ["DeferredWrites"]

Prepare: TypeAlias = Callable[[], Callable[[Connection], None]]
"""Function that prepares a write without the database, and returns a function that writes in a transaction."""

_LOG = logging.getLogger("agentkit.memory")
_BATCH = 256
_GATHER = 1.0
"""Seconds between the first write and its transaction. After each transaction, readers of SQLite read all their pages
again."""
_MAX_WAITING = 4096
"""Maximum queued writes while the database cannot be written; with more, the oldest are dropped."""


class DeferredWrites:
    """Writes that are queued for a thread. Lost if the process is killed within about `_GATHER` seconds."""

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
        """Wait until all that was queued before is written.

        Raises:
            StoreError: A write failed. It stays queued and can be tried again.
        """
        with self._changed:
            until = self._added
            last = self._tried + 1
            # A running try may not include all queued writes.
            if self._trying:
                last += 1
            while self._done < until:
                if self._tried >= last and self.problem is not None:
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
        """Leave the queue to the parent of this process."""
        self._changed, self._waiting = Condition(), deque()
        self._added = self._done = 0
        self._trying = False

    def _pass(self) -> bool:
        """Write the queue, batch after batch; return False, as no more work can be done now."""
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
        """Write a batch in one transaction, or each write alone if one is invalid; return a temporary error."""
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
