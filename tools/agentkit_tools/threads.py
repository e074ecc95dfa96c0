"""Sync functions run here: daemon threads that can be left behind and never keep the process from ending."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

__all__ = ["DeadlineError", "abandoned_threads", "run_in_thread"]

T = TypeVar("T")

_MOST_THREADS = 256
_IDLE_SECONDS = 10.0
_inside: ContextVar[bool] = ContextVar("agentkit_tools_inside_thread", default=False)


class DeadlineError(Exception):
    """A tool took longer than its policy allows. Never leaves the tools layer."""


class _Job:
    """One function call: waiting, then running, then done; or given up on the way."""

    __slots__ = ("call", "future", "given_up", "loop", "started")

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.call: Callable[[], Any] | None = call
        self.loop = loop
        self.future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        self.started = False
        self.given_up = False

    def run(self) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            call, self.call = self.call, None
            if call is not None:
                value = call()
        except BaseException as raised:  # SystemExit too: it ends the tool, not the thread
            error = raised
        finally:
            if not self.given_up:
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    self.loop.call_soon_threadsafe(self._deliver, value, error)

    def fail(self) -> None:
        """Answer for a thread that was killed before it could."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._deliver, None, RuntimeError("the thread of the tool was killed"))

    def _deliver(self, value: Any, error: BaseException | None) -> None:
        if not self.future.done():
            self.future.set_result((value, error))

    def expire(self) -> None:
        """Called by the loop when the time is up."""
        if not self.future.done():
            _pool.give_up(self)
            self.future.set_result((None, DeadlineError()))


class _Pool:
    """Threads that wait for jobs for a while, the last one used first.

    Jobs started from inside a tool get a thread even when the pool is full: the outer tool may be waiting for them.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.idle: list[SimpleQueue[_Job]] = []
        self.backlog: deque[_Job] = deque()
        self.threads = 0
        self.abandoned = 0

    def submit(self, job: _Job, nested: bool) -> None:
        with self.lock:
            if self.idle:
                self.idle.pop().put(job)
                return
            if self.threads >= _MOST_THREADS and not nested:
                self.backlog.append(job)
                return
            self._start(job)

    def _start(self, job: _Job) -> None:
        """Start a thread; the lock is held."""
        Thread(target=self._work, args=(job,), name="agentkit-tool", daemon=True).start()
        self.threads += 1

    def give_up(self, job: _Job) -> None:
        """Stop waiting for a job: one that runs is left alone, one that waits never starts."""
        with self.lock:
            job.given_up = True
            job.call = None
            if job.started:
                self.abandoned += 1
                self.threads -= 1
                if self.backlog:
                    self._start(self.backlog.popleft())

    def _work(self, job: _Job | None) -> None:
        """Run jobs until none comes for a while, or until this thread is given up or killed."""
        inbox: SimpleQueue[_Job] = SimpleQueue()
        killed = True
        try:
            while job is not None:
                if self._do(job):
                    break
                job = self._next(inbox)
            killed = False
        finally:
            if killed:  # by an exception that another thread set in this one
                with self.lock:
                    self.threads -= 1
                    if inbox in self.idle:
                        self.idle.remove(inbox)
                if job is not None:
                    job.fail()
                while not inbox.empty():
                    self.submit(inbox.get(), nested=True)

    def _next(self, inbox: SimpleQueue[_Job]) -> _Job | None:
        """Wait for another job; None when there is none for a while."""
        with self.lock:
            if self.backlog:
                return self.backlog.popleft()
            self.idle.append(inbox)
        try:
            return inbox.get(timeout=_IDLE_SECONDS)
        except Empty:
            with self.lock:
                if inbox in self.idle:
                    self.idle.remove(inbox)
                    self.threads -= 1
                    return None
            return inbox.get()

    def _do(self, job: _Job) -> bool:
        """Run one job; return whether this thread was given up meanwhile."""
        with self.lock:
            if job.given_up:
                return False
            job.started = True
        try:
            job.run()
        finally:
            with self.lock:
                if job.given_up:
                    self.abandoned -= 1
                job.started = False
        return job.given_up


_pool = _Pool()


def _renew() -> None:
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)  # threads do not survive a fork


def abandoned_threads() -> int:
    """Return how many threads still run a sync tool whose result nobody waits for any more."""
    return _pool.abandoned


async def run_in_thread(call: Callable[[], T], timeout: float | None = None) -> tuple[T, BaseException | None]:
    """Return what `call()` returned or raised in a daemon thread, in a copy of the current context.

    The error is `DeadlineError` when `timeout` seconds passed; the call then goes on in its thread.
    """
    loop = asyncio.get_running_loop()
    context = copy_context()
    nested = _inside.get()
    if not nested:
        context.run(_inside.set, True)
    job = _Job(lambda: context.run(call), loop)
    _pool.submit(job, nested)
    timer = loop.call_later(timeout, job.expire) if timeout is not None else None
    try:
        return await job.future
    except BaseException:
        _pool.give_up(job)
        raise
    finally:
        if timer is not None:
            timer.cancel()
