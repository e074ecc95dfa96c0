"""`OnDemand`: a thread that works when it is woken, so that callers do not wait for the work."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from threading import Event, Lock, Thread, current_thread
from weakref import WeakSet

from agentkit_memory.process.forks import track

_LOG = logging.getLogger("agentkit.memory")
_IDLE = 5.0
"""Seconds without work after which the thread ends."""
_MAX_WAIT = 2.0
"""Maximum seconds that the end of the process waits for started work."""

_started: WeakSet[OnDemand] = WeakSet()


class OnDemand:
    """Calls `work` in a separate thread, and repeats it while it returns True.

    The thread starts when it is first woken and ends after some seconds without work. It never prevents the end of the
    process. `gather_seconds` is the time between waking and working, in which more work can be collected.
    """

    def __init__(self, name: str, work: Callable[[], bool], *, gather_seconds: float = 0.0) -> None:
        self._name = name
        self._work = work
        self._gather_seconds = gather_seconds
        self._lock = Lock()
        self._wanted, self._skip_gather = Event(), Event()
        self._thread: Thread | None = None
        self._stopped = False
        track(self)

    def wake(self, *, hurry: bool = False) -> None:
        """Wake the thread; with `hurry`, it starts at once, without collecting more work."""
        if hurry:
            self._skip_gather.set()
        elif self._wanted.is_set():
            # A pass is pending, and will include the new work.
            return
        with self._lock:
            self._wanted.set()
            if self._thread is None and not self._stopped:
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                _started.add(self)
                self._thread.start()

    def stop(self, seconds: float) -> bool:
        """Stop the thread, and wait at most `seconds` for started work; return True if it has finished.

        A call in the thread itself does not wait, and returns True.
        """
        with self._lock:
            self._stopped = True
            self._wanted.set()
            thread = self._thread
        self._skip_gather.set()
        if thread is not None and thread is not current_thread():
            thread.join(seconds)
            return not thread.is_alive()
        return True

    def disown(self, why: str) -> None:
        """Forget the thread after a fork: it runs only in the parent process. `forks.track` requires `why`."""
        self._lock, self._wanted, self._skip_gather = Lock(), Event(), Event()
        self._thread, self._stopped = None, True

    def _run(self) -> None:
        while True:
            was_woken = self._wanted.wait(_IDLE)
            with self._lock:
                if self._stopped or not (was_woken or self._wanted.is_set()):
                    self._thread = None
                    return
                self._wanted.clear()
            if self._gather_seconds:
                self._skip_gather.wait(self._gather_seconds)
                self._skip_gather.clear()
            try:
                more = self._work()
            # A panic of a library in Rust is a BaseException. An exception would end the thread for ever.
            except BaseException:
                _LOG.exception("%s: failed; it is tried again when it is next woken", self._name)
                more = False
            if more:
                self._wanted.set()


@atexit.register
def _at_exit() -> None:
    for each in list(_started):
        each.stop(_MAX_WAIT)
