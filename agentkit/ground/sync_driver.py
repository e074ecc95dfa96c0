"""The sync driver: runs the asyncio driver to its end from code that is not async, inside a running loop too.

Event loops are kept between runs, so that connections to a model are reused. A run has its loop to itself: whatever
a tool blocks or calls, no other run waits for it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from concurrent.futures import wait
from contextlib import suppress
from contextvars import Context, copy_context
from inspect import CORO_CREATED, getcoroutinestate
from queue import SimpleQueue
from typing import Any, TypeVar

from agentkit_prompts.system.threads import Threads

__all__ = ["close_idle", "run_blocking", "streamed"]

R = TypeVar("R")

_MAX_IDLE = 8
_GRACE = 2.0
"""Seconds that tasks left behind have to end."""
_MAX_WAITING = 64
"""Events that wait for whoever reads them."""
_idle: list[asyncio.AbstractEventLoop] = []
"""The one used last is taken first. Appending and popping are atomic: there is no lock that a fork could copy."""


def run_blocking(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine and return its result. Interrupting the wait cancels it; tasks it left behind are cancelled."""
    if not _in_running_loop():
        return _run(coroutine, copy_context())
    return _run_in_thread(coroutine)


def _run(coroutine: Coroutine[Any, Any, R], context: Context) -> R:
    try:
        loop = _idle.pop()
    except IndexError:
        loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(coroutine, context=context)
        with _Interrupt(task):
            return loop.run_until_complete(task)
    finally:
        stuck = _end(left, loop) if (left := asyncio.all_tasks(loop)) else False
        if not stuck and len(_idle) < _MAX_IDLE:
            _idle.append(loop)
        else:
            loop.run_until_complete(_end_generators(loop))
            if not stuck:  # otherwise its threads may wait for the stuck tasks
                loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


class _Interrupt:
    """While a task runs in the main thread, SIGINT cancels it, and a second one is raised at once.

    `asyncio.Runner` does the same, and takes longer for it than for the rest: Python writes the `repr` of its handler,
    which is that of the task with its result.
    """

    __slots__ = ("_count", "_is_handler", "_task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._count = 0
        self._is_handler = False

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a program's own stays
            with suppress(ValueError):  # Python is part of a program that does not let it have signals
                signal.signal(signal.SIGINT, self._interrupt)
                self._is_handler = True

    def _interrupt(self, number: int, frame: object) -> None:
        self._count += 1
        if self._count > 1 or self._task.done():
            raise KeyboardInterrupt
        self._task.cancel()
        self._task.get_loop().call_soon_threadsafe(lambda: None)  # it may be waiting

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._is_handler and signal.getsignal(signal.SIGINT) == self._interrupt:  # nobody has put another one there
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._count and isinstance(error, asyncio.CancelledError) and self._task.uncancel() == 0:
            raise KeyboardInterrupt


def _end(tasks: Iterable[asyncio.Task[Any]], loop: asyncio.AbstractEventLoop) -> bool:
    """Cancel tasks that were left behind, and return whether some of them swallow that."""
    for task in tasks:
        task.cancel()
    done, stuck = loop.run_until_complete(asyncio.wait(tasks, timeout=_GRACE))
    for task in done:
        _ = task.cancelled() or task.exception()  # asyncio complains about what nobody asked for
    return bool(stuck)


def _run_in_thread(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run in a thread: this one has a loop that is running already."""
    found: list[R] = []

    async def run(_: object) -> None:
        found.append(await coroutine)

    try:
        for _ in streamed(run):  # it passes nothing on
            pass
    finally:
        if getcoroutinestate(coroutine) == CORO_CREATED:  # it was interrupted before it began
            coroutine.close()
    return found[0]


def streamed(run: Callable[[Callable[[Any], Awaitable[None]]], Coroutine[Any, Any, object]]) -> Generator[Any]:
    """Yield what `run`, which is run in a thread, passes on; raise what it raises. Closing cancels it."""
    waiting: SimpleQueue[Any] = SimpleQueue()
    end, is_full, left = object(), threading.Event(), threading.Event()
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None, asyncio.Event]] = []

    async def main() -> object:
        has_room = asyncio.Event()
        started.append((asyncio.get_running_loop(), asyncio.current_task(), has_room))

        async def pass_on(event: Any) -> None:
            waiting.put(event)
            is_full.set()  # before looking: whoever takes an event meanwhile makes room
            while waiting.qsize() >= _MAX_WAITING:
                has_room.clear()
                await has_room.wait()
            is_full.clear()

        if left.is_set():
            raise asyncio.CancelledError
        return await run(pass_on)

    def work() -> object:
        try:
            return _run(main(), context)
        finally:
            waiting.put(end)

    context = copy_context()
    outcome = Threads(1, "agentkit-stream").submit(work)
    try:
        while (event := waiting.get()) is not end:
            if is_full.is_set():
                for loop, _, has_room in started:
                    with suppress(RuntimeError):  # the loop is closed: the run has ended
                        loop.call_soon_threadsafe(has_room.set)
            yield event
        outcome.result()
    finally:
        left.set()
        for loop, task, _ in started:
            if task is not None and not outcome.done():
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(task.cancel)
        wait([outcome])


def _in_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def close_idle() -> None:
    """Close the loops that wait for a run."""
    if not _idle:
        return
    if _in_running_loop():  # which lets no other loop run in its thread
        closing = threading.Thread(target=_close_all, name="agentkit-close")
        closing.start()
        closing.join()
    else:  # without a thread: Python starts none any more when it ends
        _close_all()


def _close_all() -> None:
    while _idle:
        loop = _idle.pop()
        loop.run_until_complete(_end_generators(loop))
        loop.close()


async def _end_generators(loop: asyncio.AbstractEventLoop) -> None:
    """Close the generators of a loop, and with them the connections of models."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            await loop.shutdown_asyncgens()


atexit.register(close_idle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=close_idle)  # a child that closed its copy of a loop would deafen the parent's
