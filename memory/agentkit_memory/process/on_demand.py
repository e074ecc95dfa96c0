"""`OnDemand`: a thread that does what has piled up whenever it is woken, so that callers do not wait for it."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from threading import Event, Lock, Thread, current_thread
from weakref import WeakSet

from agentkit_memory.process.forks import track

__all__ = ["OnDemand"]

_LOG = logging.getLogger("agentkit.memory")
_IDLE = 5.0
"""Seconds without work after which the thread ends."""
_MAX_WAIT = 2.0
"""Seconds that the end of the process waits for work that has begun."""

_running: WeakSet[OnDemand] = WeakSet()


class OnDemand:
    """Calls `work` in a thread of its own, again as long as it returns that there is more to do.

    The thread starts when it is first woken and ends after some seconds without work. It never keeps the process from
    ending. `gather` is how many seconds pass between waking and working, so that more work comes together.
    """

    def __init__(self, name: str, work: Callable[[], bool], *, gather: float = 0.0) -> None:
        self._name = name
        self._work = work
        self._gather = gather
        self._lock = Lock()
        self._wanted, self._hurry = Event(), Event()
        self._thread: Thread | None = None
        self._stopped = False
        track(self)

    def wake(self, *, hurry: bool = False) -> None:
        """Have the work done soon; with `hurry`, without gathering more first."""
        if hurry:
            self._hurry.set()
        elif self._wanted.is_set():
            # The next pass has not begun.
            return
        with self._lock:
            self._wanted.set()
            if self._thread is None and not self._stopped:
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                _running.add(self)
                self._thread.start()

    def stop(self, seconds: float) -> bool:
        """Begin no work any more, and wait so many seconds for what has begun; return whether it has ended."""
        with self._lock:
            self._stopped = True
            self._wanted.set()
            thread = self._thread
        self._hurry.set()
        if thread is not None and thread is not current_thread():
            thread.join(seconds)
            return not thread.is_alive()
        return True

    def disown(self, why: str) -> None:
        """Forget the thread, which exists in the parent of this process only."""
        self._lock, self._wanted, self._hurry = Lock(), Event(), Event()
        self._thread, self._stopped = None, True

    def _run(self) -> None:
        while True:
            found = self._wanted.wait(_IDLE)
            with self._lock:
                if self._stopped or not (found or self._wanted.is_set()):
                    self._thread = None
                    return
                self._wanted.clear()
            if self._gather:
                self._hurry.wait(self._gather)
                self._hurry.clear()
            try:
                more = self._work()
            except BaseException:
                # A panic too: the thread that ends here is not started again.
                _LOG.exception("%s: failed, and is tried again when there is more to do", self._name)
                more = False
            if more:
                self._wanted.set()


@atexit.register
def _at_exit() -> None:
    for each in list(_running):
        each.stop(_MAX_WAIT)
