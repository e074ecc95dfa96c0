"""`BackgroundLoop`: an event loop in a separate thread, for connections that outlive the event loops of callers.

The event loop of a caller can end with a run, but sessions with servers, their processes and tasks, and clients of
models and embedders must outlive the run.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar

T = TypeVar("T")

_STOP_SECONDS = 1.5
"""Seconds that `stop` waits; an MCP server that ignores its shutdown is killed before this limit."""
_JOIN_SECONDS = 0.2
_REPORT_SECONDS = 0.3
"""Seconds in which tasks can react to the final work before they are cancelled."""
_GENERATOR_SECONDS = 0.7
"""Seconds to wait for cancelled tasks before async generators, which close connections, are closed; included in
`_STOP_SECONDS`."""
_CLEANUP_SECONDS = 5.0
"""Time limit in seconds of the final work, and of the cleanup of cancelled tasks."""


class BackgroundLoop:
    """A daemon thread in which an event loop runs until `stop`."""

    __slots__ = ("_loop", "_thread")

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while self._run_until_interrupted():
                pass
        finally:
            self._loop.close()

    def _run_until_interrupted(self) -> bool:
        """Run the loop until it is stopped; return True if a task interrupted it.

        KeyboardInterrupt or SystemExit in a task stops the loop, which must be restarted for the other tasks. The
        caller that waits for the task receives the exception.
        """
        try:
            self._loop.run_forever()
        except (KeyboardInterrupt, SystemExit):
            return True
        return False

    @property
    def is_current(self) -> bool:
        """True in the thread of the loop."""
        return current_thread() is self._thread

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread; do nothing if the thread has stopped."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run `work` in the thread and return its future; cancelling the future cancels the work.

        Raises:
            RuntimeError: The thread was stopped.
        """
        watched = _watched(work)
        try:
            return asyncio.run_coroutine_threadsafe(watched, self._loop)
        except RuntimeError:
            watched.close()
            work.close()
            raise

    def stop(self, final_work: Coroutine[Any, Any, None] | None = None, *, wait: bool = True) -> None:
        """Run `final_work`, cancel every other task, and end the thread.

        If `wait` is True, wait a short time; the thread ends later if tasks take longer to clean up. A call in the
        thread of the loop, for example by the garbage collector, does not wait.

        Raises:
            RuntimeError: The thread was stopped before.
        """
        ending = self.submit(self._end(final_work))
        # The loop stops after the cleanup, not at `_STOP_SECONDS`, so that slow tasks can close their sockets.
        ending.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        if wait and not self.is_current:
            with suppress(Exception):
                ending.result(_STOP_SECONDS)
            self._thread.join(_JOIN_SECONDS)

    async def _end(self, final_work: Coroutine[Any, Any, None] | None) -> None:
        try:
            if final_work is not None:
                async with asyncio.timeout(_CLEANUP_SECONDS):
                    await final_work
        finally:
            pending = asyncio.all_tasks() - {asyncio.current_task()}
            if pending:
                # Tasks can react to the final work, for example report a closed connection.
                await asyncio.wait(pending, timeout=_REPORT_SECONDS)
            for task in pending:
                task.cancel()
                task.add_done_callback(retrieve)
            if pending:
                await asyncio.wait(pending, timeout=_GENERATOR_SECONDS)
            # Close connections even if a task does not end.
            await asyncio.get_running_loop().shutdown_asyncgens()
            if pending:
                await asyncio.wait(pending, timeout=_CLEANUP_SECONDS)


async def _watched(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    if task is not None:
        task.add_done_callback(retrieve)
    return await work


def retrieve(ended: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a future that no caller awaits, so that asyncio does not log it as never retrieved."""
    if not ended.cancelled():
        ended.exception()


def background_loop(name: str) -> BackgroundLoop:
    """Return the loop with this name: the process has one loop per name, which starts at its first use."""
    with _lock:
        loop = _loops.get(name)
        if loop is None:
            loop = _loops[name] = BackgroundLoop(name)
        return loop


def stop_loops(prefix: str = "") -> None:
    """Stop the loops of this process whose names start with `prefix`; the next use of a name starts a new loop."""
    with _lock:
        stopped = [_loops.pop(name) for name in list(_loops) if name.startswith(prefix)]
    for loop in stopped:
        loop.stop()


def never_collect(obj: object) -> None:
    """Keep an object that a fork copied, and the objects to which it refers, so that they are never destroyed."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))


_lock = Lock()
_loops: dict[str, BackgroundLoop] = {}


def _in_child() -> None:
    global _lock
    _lock = Lock()
    for loop in _loops.values():
        # The destruction of the copy would close connections of the original and log pending tasks.
        never_collect(loop)
    _loops.clear()


atexit.register(stop_loops)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
