"""Sync functions run here: daemon threads that can be left behind and never keep the process from ending."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from agentkit_tools.errors import ToolError

__all__ = ["abandoned_threads", "busy_threads", "run_in_thread"]

T = TypeVar("T")

_MAX_TOOLS, _MAX_RECALLS = 48, 16
"""Calls that run at once in a process, also those that nobody waits for any more; further ones wait."""
_IDLE_SECONDS = 10.0
_inside: ContextVar[bool] = ContextVar("agentkit_tools_inside_thread", default=False)


class _Job:
    """One function call: waiting, then running, then done; or given up on the way."""

    __slots__ = ("call", "future", "given_up", "loop", "started")

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        self.call: Callable[[], Any] | None = call
        self.loop = loop
        self.future: asyncio.Future[Any] | None = future
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
            del value, error  # what it failed with refers to this frame

    def fail(self) -> None:
        """Answer for a thread that was killed before it could."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._deliver, None, RuntimeError("the thread of the tool was killed"))

    def refuse(self, abandoned: int) -> None:
        """Answer for a job that is not begun, because those that hold all threads do not end."""
        self.call = None
        error = ToolError(
            f"{abandoned} calls of sync tools or recalls ran out of time and hold their threads: no further one is "
            "called in this process until some of them end. Give these time limits inside, or make the tools async"
        )
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._deliver, None, error)

    def _deliver(self, value: Any, error: BaseException | None) -> None:
        future, self.future = self.future, None  # the job outlives the call as long as its error does
        if future is not None and not future.done():
            future.set_result((value, error))


class _Worker:
    """A thread, the job it has, and what wakes it. The job stays here until it is answered for."""

    __slots__ = ("job", "wake")

    def __init__(self, job: _Job) -> None:
        self.job: _Job | None = job
        self.wake: SimpleQueue[None] = SimpleQueue()


class _Pool:
    """Threads that wait for jobs for a while, the last one used first.

    An abandoned thread keeps its place: when all are, jobs are refused. Jobs started from inside a tool get a thread
    even when the pool is full: the outer tool may be waiting for them.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.lock = Lock()
        self.idle: list[_Worker] = []
        self.backlog: deque[_Job] = deque()
        self.threads = 0
        """Those whose job somebody waits for, and those that wait for one."""
        self.abandoned = 0

    def submit(self, job: _Job, nested: bool) -> None:
        with self.lock:
            if self.abandoned >= self.most:
                job.refuse(self.abandoned)
            elif self.idle:
                worker = self.idle.pop()
                worker.job = job
                worker.wake.put(None)
            elif self.threads + self.abandoned >= self.most and not nested:
                self.backlog.append(job)
            else:
                self._start(job)

    def _start(self, job: _Job) -> None:
        """Start a thread; the lock is held."""
        Thread(target=self._work, args=(_Worker(job),), name="agentkit-tool", daemon=True).start()
        self.threads += 1

    def give_up(self, job: _Job) -> None:
        """Stop waiting for a job: one that runs is left alone, one that waits never starts."""
        with self.lock:
            job.given_up = True
            job.call = None
            if job.started:
                self.abandoned += 1
                self.threads -= 1
                while self.backlog and self.abandoned >= self.most:
                    self.backlog.popleft().refuse(self.abandoned)

    def _work(self, worker: _Worker) -> None:
        """Run jobs until none comes for a while, or until this thread is given up or killed."""
        killed = True
        try:
            while worker.job is not None and not self._do(worker.job):
                worker.job = None
                self._wait(worker)
            killed = False
        finally:
            if killed:  # by an exception that another thread set in this one
                self._replace(worker)

    def _wait(self, worker: _Worker) -> None:
        """Wait until the worker has a job again; it has none when there is nothing to do for a while."""
        with self.lock:
            if self.backlog:
                worker.job = self.backlog.popleft()
                return
            self.idle.append(worker)
        try:
            worker.wake.get(timeout=_IDLE_SECONDS)
        except Empty:
            with self.lock:
                if worker in self.idle:
                    self.idle.remove(worker)
                    self.threads -= 1
                    return
            worker.wake.get()  # a job came just now

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
                job.started = False
                if job.given_up:
                    self.abandoned -= 1
                    if self.backlog and self.threads + self.abandoned < self.most:  # this thread ends
                        self._start(self.backlog.popleft())
        return job.given_up

    def _replace(self, worker: _Worker) -> None:
        """Account for a thread that was killed, and for the job it had."""
        job = worker.job
        with self.lock:
            if worker in self.idle:
                self.idle.remove(worker)
            if job is None or not job.given_up:
                self.threads -= 1
        if job is not None and job.call is not None:  # it had not begun
            self.submit(job, nested=True)
        elif job is not None:
            job.fail()


_tools, _recalls = _Pool(_MAX_TOOLS), _Pool(_MAX_RECALLS)


def _renew() -> None:
    global _tools, _recalls
    _tools, _recalls = _Pool(_MAX_TOOLS), _Pool(_MAX_RECALLS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)  # threads do not survive a fork


def abandoned_threads() -> int:
    """Return how many threads still run a sync tool or a recall whose result nobody waits for any more; 64 at most."""
    return _tools.abandoned + _recalls.abandoned


def busy_threads() -> int:
    """Return how many threads run a call that somebody waits for."""
    return sum(pool.threads - len(pool.idle) for pool in (_tools, _recalls))


async def run_in_thread(call: Callable[[], T], *, is_recall: bool = False) -> tuple[T, BaseException | None]:
    """Return what `call()` returned or raised in a daemon thread, in a copy of the current context.

    When the task that waits is cancelled, a call that has begun goes on in its thread. Where all threads do, no further
    call begins: the error is a `ToolError`. Recalls have threads of their own, so that no tool keeps one from its turn.
    """
    pool = _recalls if is_recall else _tools
    context = copy_context()
    nested = _inside.get()
    if not nested:
        context.run(_inside.set, True)
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[T, BaseException | None]] = loop.create_future()
    job = _Job(partial(context.run, call), loop, future)
    pool.submit(job, nested)
    try:
        return await future
    except BaseException:
        pool.give_up(job)
        raise
