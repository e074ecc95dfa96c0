"""Daemon threads: slots, abandoned calls, and killed threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from agentkit_prompts.system.threads import Threads, _Worker
from tests.waiting import LONG, until


class Hanging(Exception):
    """Error of a refused call, with the number of abandoned calls."""


def _hang(release: threading.Event) -> None:
    release.wait(600)


def test_another_call_gets_the_slot_of_an_abandoned_call() -> None:
    threads, release = Threads(1, "t"), threading.Event()
    first = threads.submit(lambda: _hang(release))
    second = threads.submit(lambda: "second")
    assert not second.done() and threads.busy == 1
    threads.abandon(first)
    assert second.result(LONG) == "second"
    release.set()
    until(lambda: not threads.abandoned)
    assert first.done()


def test_a_call_that_raises_stop_iteration_ends() -> None:
    async def wait() -> None:
        await asyncio.wait_for(Threads(1, "t").run(next, iter(())), LONG)

    with pytest.raises(RuntimeError) as caught:
        asyncio.run(wait())
    assert isinstance(caught.value.__cause__, StopIteration)


def test_an_abandoned_call_keeps_its_slot_if_other_calls_are_refused() -> None:
    threads, release = Threads(1, "t", refusal=Hanging), threading.Event()
    first = threads.submit(lambda: _hang(release))
    second = threads.submit(lambda: "second")
    until(first.running)
    threads.abandon(first)
    for waiting in (second, threads.submit(lambda: "third")):
        with pytest.raises(Hanging) as caught:
            waiting.result(LONG)
        assert caught.value.args == (1,)
    release.set()
    until(lambda: not threads.abandoned)
    assert threads.submit(lambda: "fourth").result(LONG) == "fourth"


def test_a_call_that_is_abandoned_before_its_start_does_not_start() -> None:
    threads, release, begun = Threads(1, "t", refusal=lambda _: ValueError()), threading.Event(), list[int]()
    first = threads.submit(lambda: _hang(release))
    second = threads.submit(lambda: begun.append(2))
    threads.abandon(second)
    assert second.cancelled()
    release.set()
    first.result(LONG)
    assert threads.submit(lambda: "third").result(LONG) == "third"
    assert begun == []


def test_a_call_from_a_running_call_needs_no_slot() -> None:
    threads = Threads(1, "t")

    def wait_for_another_call() -> str:
        return asyncio.run(threads.outcome(lambda: "inner", LONG, at_once=True))[0]

    assert threads.submit(wait_for_another_call).result(LONG) == "inner"


def test_the_slot_of_a_thread_that_fails_to_start_is_free_for_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, start, release, is_running = Threads(1, "t"), threading.Thread.start, threading.Event(), threading.Event()

    def hang() -> None:
        is_running.set()
        _hang(release)

    hanging = threads.submit(hang)
    refused, waiting = threads.submit(lambda: "refused"), threads.submit(lambda: "waiting")
    assert is_running.wait(LONG)
    failures = [RuntimeError("can't start new thread")]

    def start_after_a_failure(thread: threading.Thread) -> None:
        if failures:
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_after_a_failure)
    threads.abandon(hanging)
    with pytest.raises(RuntimeError, match="new thread"):
        refused.result(LONG)
    assert waiting.result(LONG) == "waiting"
    release.set()


def test_a_thread_that_fails_to_start_takes_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, start, is_full = Threads(1, "t"), threading.Thread.start, True

    def start_if_there_is_room(thread: threading.Thread) -> None:
        if is_full:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_there_is_room)
    with pytest.raises(RuntimeError, match="new thread"):
        threads.submit(lambda: "first").result(LONG)
    assert threads.busy == 0
    is_full = False
    assert threads.submit(lambda: "second").result(LONG) == "second"


async def test_a_cancelled_task_abandons_its_call_or_waits_for_its_end() -> None:
    threads, begun, release, ended = Threads(1, "t"), threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        release.wait(LONG)
        ended.set()

    for way, has_ended in ((threads.run, False), (threads.finish, True)):
        for event in (begun, release, ended):
            event.clear()
        task = asyncio.ensure_future(way(write))
        await asyncio.to_thread(begun.wait, LONG)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, release.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set() is has_ended
        release.set()
        assert await asyncio.to_thread(ended.wait, LONG)


def test_a_thread_waits_for_more_work_for_a_while_and_then_ends() -> None:
    threads = Threads(4, "t", idle=LONG)
    first = threads.submit(threading.current_thread).result(LONG)
    until(lambda: not threads.busy)
    assert threads._threads == 1
    assert threads.submit(threading.current_thread).result(LONG) is first
    until(lambda: not threads.busy)
    threads.idle = 0.0
    threads.submit(str).result(LONG)
    until(lambda: not threads._threads)


def test_a_thread_takes_work_that_is_submitted_at_the_end_of_its_wait() -> None:
    threads, given = Threads(1, "t"), list[Future[str]]()

    class Late(SimpleQueue[None]):
        def get(self, block: bool = True, timeout: float | None = None) -> None:
            if timeout is None:
                return super().get()
            given.append(threads.submit(lambda: "just now"))
            raise Empty

    worker = _Worker((Future(), contextvars.copy_context(), str))
    worker.wake = Late()
    threads._threads = 1
    threads._wait(worker)
    assert worker.job is not None and worker.job[0] is given[0]
    assert worker.wake.empty()  # No wake-up without work remains in the queue.


def test_a_call_abandoned_before_its_start_is_cancelled_instead_of_refused() -> None:
    threads, release = Threads(1, "t", refusal=Hanging), threading.Event()
    first = threads.submit(lambda: _hang(release))
    left, waiting = threads.submit(str), threads.submit(str)
    until(first.running)
    threads.abandon(left)
    threads.abandon(first)
    assert left.cancelled()
    with pytest.raises(Hanging):
        waiting.result(LONG)
    release.set()


def test_the_caller_gets_the_exception_and_the_thread_continues() -> None:
    threads = Threads(1, "t", idle=LONG)
    with pytest.raises(SystemExit):
        threads.submit(lambda: exit(3)).result(LONG)
    assert threads.submit(lambda: "ok").result(LONG) == "ok"


def test_a_call_has_the_context_variables_of_its_submitter() -> None:
    variable = contextvars.ContextVar("variable", default="outside")
    variable.set("mine")
    assert Threads(1, "t").submit(variable.get).result(LONG) == "mine"


@pytest.mark.parametrize("begun", [True, False])
def test_a_killed_thread_is_not_counted_and_its_call_ends(begun: bool) -> None:
    threads = Threads(1, "t")
    future: Future[Any] = Future()
    if begun:
        future.set_running_or_notify_cancel()
    threads._threads = 1
    waiting = threads.submit(lambda: "waiting")
    threads._replace(_Worker((future, contextvars.copy_context(), lambda: "another thread")))
    assert waiting.result(LONG) == "waiting"
    if begun:
        with pytest.raises(RuntimeError):
            future.result(LONG)
    else:
        assert future.result(LONG) == "another thread"
    until(lambda: not threads._threads)


def test_a_killed_idle_thread_is_not_counted() -> None:
    threads, release = Threads(1, "t"), threading.Event()
    worker = _Worker((Future(), contextvars.copy_context(), str))
    worker.job = None
    threads._threads, threads._idle = 1, [worker]
    threads._replace(worker)
    assert threads._threads == threads.busy == 0
    held = threads.submit(lambda: _hang(release))
    until(held.running)
    assert threads.busy == 1
    release.set()


def test_a_thread_killed_after_its_call_is_abandoned_is_counted_once() -> None:
    threads = Threads(1, "t", refusal=lambda _: ValueError())
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    threads._threads = 1
    threads.abandon(future)
    threads._replace(_Worker((future, contextvars.copy_context(), str)))
    assert (threads._threads, threads.abandoned) == (0, 0)
    assert threads.submit(lambda: "free again").result(LONG) == "free again"
