"""`DaemonThreads`: threads for what may hang, such as a store. They never keep the process from ending."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from threading import Lock, Thread
from typing import Any, TypeVar
from weakref import WeakSet

__all__ = ["DaemonThreads"]

T = TypeVar("T")


class DaemonThreads:
    """Runs functions in daemon threads, which end when there is nothing left to do.

    Args:
        most: How many run at once; the others wait.
        name: What the names of the threads begin with.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._renew()
        _ALL.add(self)

    def _renew(self) -> None:
        self._lock = Lock()
        self._waiting: deque[tuple[Future[Any], Context, Callable[[], Any]]] = deque()
        self._threads = 0
        self._left: set[Future[Any]] = set()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Call a function in a thread, in a copy of the current context, and return its future."""
        future: Future[T] = Future()
        with self._lock:
            self._waiting.append((future, copy_context(), call))
            self._start()
        return future

    def leave(self, future: Future[Any]) -> None:
        """Wait for a call no longer: one that has begun goes on, and others get a thread in place of its own."""
        with self._lock:
            if not future.cancel() and not future.done():
                self._left.add(future)
                self._threads -= 1
                self._start()

    def _start(self) -> None:
        """Start a thread where one is needed; the lock is held."""
        if self._waiting and self._threads < self._most:
            self._threads += 1
            Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                future, context, call = self._waiting.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
            try:
                result = context.run(call)
            except BaseException as error:  # whoever waits gets it, and the thread goes on
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
            with self._lock:
                if future in self._left:  # another thread took its place
                    self._left.remove(future)
                    return
            del future, context, call


_ALL: WeakSet[DaemonThreads] = WeakSet()


def _in_child() -> None:
    for each in list(_ALL):
        each._renew()  # threads do not survive a fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
