"""Event loops in threads, for MCP sessions, sync runs and async embedders."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress

import pytest

from agentkit_prompts.system import background_loop
from agentkit_prompts.system.background_loop import BackgroundLoop
from tests.waiting import LONG, until


def test_stop_runs_the_last_coroutine_cancels_the_tasks_and_ends_the_thread() -> None:
    seen: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def last() -> None:
        seen.append("last")

    thread = BackgroundLoop("agentkit-test-test")
    thread.submit(endless())
    thread.stop(last())

    until(lambda: not [one for one in threading.enumerate() if one.name == "agentkit-test-test"])
    assert seen == ["last", "cancelled"]
    with pytest.raises(RuntimeError):
        thread.submit(last())


def test_stop_waits_for_the_cleanup_of_tasks_and_closes_open_generators() -> None:
    seen: list[str] = []

    over = asyncio.Event()

    async def reporting() -> None:
        await over.wait()
        seen.append("reported")

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            seen.append("cleaned up")

    async def items() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            seen.append("closed")

    async def begin() -> AsyncGenerator[int]:
        generator = items()
        await anext(generator)
        return generator

    async def last() -> None:
        over.set()

    thread = BackgroundLoop("agentkit-test-clean")
    left = thread.submit(begin()).result(LONG)
    thread.submit(slow_to_end())
    thread.submit(reporting())
    thread.stop(last())

    until(lambda: len(seen) == 3)
    assert seen == ["reported", "cleaned up", "closed"]
    del left


def test_an_endless_task_does_not_prevent_the_close_of_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generators close connections."""
    monkeypatch.setattr(background_loop, "_CLEANUP_SECONDS", LONG)
    begun, closed = threading.Event(), asyncio.Event()
    seen: list[bool] = []

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), LONG / 2)
            seen.append(closed.is_set())

    async def items() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            closed.set()

    async def begin() -> AsyncGenerator[int]:
        generator = items()
        await anext(generator)
        return generator

    thread = BackgroundLoop("agentkit-test-endless")
    left = thread.submit(begin()).result(LONG)
    thread.submit(endless())
    assert begun.wait(LONG)
    thread.stop()
    until(lambda: seen)
    assert seen == [True]
    del left


def test_a_task_completes_its_cleanup_after_the_time_limit_of_stop() -> None:
    begun, may_end, has_ended = threading.Event(), asyncio.Event(), threading.Event()

    async def slow_to_end() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            await may_end.wait()
            has_ended.set()

    async def last() -> None: ...

    thread = BackgroundLoop("agentkit-test-slow")
    thread.submit(slow_to_end())
    assert begun.wait(LONG)
    thread.stop(last())
    thread._loop.call_soon_threadsafe(may_end.set)
    assert has_ended.wait(LONG)
    until(lambda: not [one for one in threading.enumerate() if one.name == "agentkit-test-slow"])


def test_a_thread_can_stop_itself() -> None:
    """The garbage collector can run in each thread."""
    done = threading.Event()
    thread = BackgroundLoop("agentkit-test-inside")

    async def last() -> None:
        done.set()

    async def stop() -> None:
        thread.stop(last())

    thread.submit(stop()).result(LONG)

    assert done.wait(LONG)
    for one in threading.enumerate():
        if one.name == "agentkit-test-inside":
            one.join(LONG)
            assert not one.is_alive()


def test_the_failure_of_cancelled_work_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    thread = BackgroundLoop("agentkit-test-late")
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()
            raise ValueError("late")

    async def last() -> None:
        pass

    future = thread.submit(work())
    assert begun.wait(LONG)
    future.cancel()
    assert ended.wait(LONG)
    thread.stop(last())
    del future  # The future references the task, which logs its exception only in its destructor.
    gc.collect()
    assert caplog.records == []


def test_cancelling_the_future_cancels_the_work() -> None:
    thread = BackgroundLoop("agentkit-test-cancel")
    cancelled = threading.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def nothing() -> None: ...

    future = thread.submit(work())
    thread.submit(asyncio.sleep(0)).result(LONG)
    future.cancel()

    assert cancelled.wait(LONG)
    thread.stop(nothing())
