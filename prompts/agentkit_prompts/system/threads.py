"""`Threads`: a limited number of daemon threads for calls that can hang and must not block the end of the process."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast
from weakref import WeakSet

P = ParamSpec("P")
T = TypeVar("T")
_Job: TypeAlias = tuple[Future[Any], Context, Callable[[], Any]]


class _Worker:
    """A thread with its current job and the queue that wakes the thread for its next job.

    The job stays in `job` until its future is done, so that the job of a killed thread is known.
    """

    __slots__ = ("job", "wake")

    def __init__(self, job: _Job) -> None:
        self.job: _Job | None = job
        self.wake: SimpleQueue[None] = SimpleQueue()


class Threads:
    """Pool of daemon threads. The most recently used thread is used first.

    Args:
        limit: Maximum number of concurrent calls; further calls wait.
        name: Name of the threads.
        idle: Seconds that a thread waits for work before it ends.
        refusal: Function that returns the error of a refused call for the number of abandoned calls that still run.
            Abandoned calls then count for the limit, and if they occupy all threads, further calls are refused. If
            None, abandoned calls do not count for the limit.
    """

    def __init__(
        self, limit: int, name: str, *, idle: float = 0.0, refusal: Callable[[int], Exception] | None = None
    ) -> None:
        self.limit, self.idle = limit, idle
        self._name, self._refusal = name, refusal
        self._renew()
        _ALL.add(self)

    def _renew(self) -> None:
        self._lock = Lock()
        self._waiting: deque[_Job] = deque()
        self._idle: list[_Worker] = []
        self._abandoned: set[Future[Any]] = set()
        self._threads = 0

    @property
    def busy(self) -> int:
        """Number of threads with a call that was not abandoned."""
        return self._threads - len(self._idle)

    @property
    def abandoned(self) -> int:
        """Number of threads with an abandoned call."""
        return len(self._abandoned)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread; return its value or raise its exception.

        If the waiting task is cancelled, a started call continues, and a waiting call never starts.
        """
        future = self.submit(function, *args, **kwargs)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self.abandon(future)
            raise

    async def finish(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread; return its value or raise its exception.

        If the waiting task is cancelled, a started call is awaited before the cancellation is raised, so that, for
        example, no write continues during later code. A waiting call never starts.
        """
        call = self.submit(function, *args, **kwargs)
        future = asyncio.wrap_future(call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not call.cancel() and not future.cancelled():
                await asyncio.wait([future])
                # asyncio logs an exception that is never retrieved.
                future.exception()
            raise

    async def outcome(
        self, call: Callable[[], T], seconds: float | None = None, *, at_once: bool = False
    ) -> tuple[T, BaseException | None]:
        """Call a function in a thread; return its value and None, or None and its exception.

        A started call continues after the time limit, or if the waiting task is cancelled.

        Args:
            call: The function.
            seconds: Time limit.
            at_once: True to start the call in spite of the limit, because running calls can wait for it.

        Raises:
            TimeoutError: The time limit was exceeded.
        """
        future = self._begin(lambda: _outcome(call), at_once=at_once)
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not waiting.done():
                waiting.set_result(None)

        def wake(_: Future[Any]) -> None:
            # An error: the event loop is closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(end)

        # `asyncio.wrap_future` would keep the result alive until the next garbage collection.
        future.add_done_callback(wake)
        timer: asyncio.TimerHandle | None = None
        if seconds is not None:
            timer = loop.call_later(seconds, end)
        try:
            await waiting
        except BaseException:
            self.abandon(future)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if not future.done():
            self.abandon(future)
            raise TimeoutError
        # The future has an exception if the call did not start or its thread was killed.
        error = future.exception()
        if error is not None:
            return cast(T, None), error
        return future.result()

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a thread, in a copy of the current context, and return its future."""
        return self._begin(lambda: function(*args, **kwargs))

    def _begin(self, call: Callable[[], T], *, at_once: bool = False) -> Future[T]:
        future: Future[T] = Future()
        job = future, copy_context(), call
        with self._lock:
            if self._refusal is not None and len(self._abandoned) >= self.limit:
                future.set_exception(self._refusal(len(self._abandoned)))
            elif self._idle:
                worker = self._idle.pop()
                worker.job = job
                worker.wake.put(None)
            elif at_once:
                self._start(job)
            else:
                self._waiting.append(job)
                self._start_waiting()
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Stop waiting for a call: a started call continues, and a waiting call never starts."""
        with self._lock:
            if future.cancel() or future.done():
                return
            self._abandoned.add(future)
            self._threads -= 1
            self._start_waiting()
            while self._refusal is not None and self._waiting and len(self._abandoned) >= self.limit:
                refused, *_ = self._waiting.popleft()
                if refused.set_running_or_notify_cancel():
                    refused.set_exception(self._refusal(len(self._abandoned)))

    def _start_waiting(self) -> None:
        """Start threads for waiting calls, up to the limit; the caller has the lock."""
        occupied = 0 if self._refusal is None else len(self._abandoned)
        while self._waiting and self._threads + occupied < self.limit:
            self._start(self._waiting.popleft())

    def _start(self, job: _Job) -> None:
        try:
            Thread(target=self._work, args=(_Worker(job),), name=self._name, daemon=True).start()
        except RuntimeError as error:
            # The process has reached its limit of threads. The error is set in the future instead of raised, because
            # the job can belong to another caller.
            if job[0].set_running_or_notify_cancel():
                job[0].set_exception(error)
        else:
            self._threads += 1

    def _work(self, worker: _Worker) -> None:
        """Run calls until the thread was idle for `idle` seconds, its call was abandoned, or it is killed."""
        is_killed = True
        try:
            while worker.job is not None and self._run(*worker.job):
                self._wait(worker)
            is_killed = False
        finally:
            # Killed: another thread has set an exception in this thread.
            if is_killed:
                self._replace(worker)

    def _run(self, future: Future[Any], context: Context, call: Callable[[], Any]) -> bool:
        """Run one call; return False if it was abandoned, because another thread has replaced this thread."""
        if not future.set_running_or_notify_cancel():
            return True
        try:
            result = context.run(call)
        # The caller receives the exception from the future, and this thread runs the next call.
        except StopIteration as error:
            # asyncio refuses it, and the waiting task would never wake up.
            failure = RuntimeError("a call in a thread raised StopIteration")
            failure.__cause__ = error
            future.set_exception(failure)
            del failure
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
            del result
        was_abandoned = self._was_abandoned(future)
        # The traceback of the error refers to this frame, which would keep the future alive.
        del future
        return not was_abandoned

    def _was_abandoned(self, future: Future[Any]) -> bool:
        with self._lock:
            if future not in self._abandoned:
                return False
            self._abandoned.remove(future)
            self._start_waiting()
            return True

    def _wait(self, worker: _Worker) -> None:
        """Wait for the next job of the worker; after `idle` seconds without a job, `worker.job` is None."""
        with self._lock:
            worker.job = self._waiting.popleft() if self._waiting else None
            if worker.job is not None:
                return
            self._idle.append(worker)
        try:
            worker.wake.get(timeout=self.idle)
        except Empty:
            with self._lock:
                if worker in self._idle:
                    self._idle.remove(worker)
                    self._threads -= 1
                    return
            # At the end of the idle time, another thread has taken the worker for a job: wait for its wake-up.
            worker.wake.get()

    def _replace(self, worker: _Worker) -> None:
        """Update the counts for a killed thread, and fail its call."""
        job = worker.job
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
        if job is None or not self._was_abandoned(job[0]):
            with self._lock:
                self._threads -= 1
                # A job that had not started gets a new thread.
                if job is not None and not job[0].running() and not job[0].done():
                    self._start(job)
                self._start_waiting()
        if job is not None and job[0].running():
            job[0].set_exception(RuntimeError("the thread of this call was killed"))


def _outcome(call: Callable[[], T]) -> tuple[T, BaseException | None]:
    try:
        return call(), None
    except BaseException as error:
        # Also SystemExit, which must end the call, but not the thread.
        return cast(T, None), error


_ALL: WeakSet[Threads] = WeakSet()


def _in_child() -> None:
    for each in list(_ALL):
        # A forked child has none of the threads of its parent.
        each._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
