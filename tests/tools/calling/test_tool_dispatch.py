"""The calls of one assistant message."""

from __future__ import annotations

import asyncio
import gc
from contextvars import ContextVar
from typing import Any

import pytest

from agentkit.prompts import ToolCall
from agentkit.testing import controlled_time
from agentkit.tools import Tool, ToolContext, ToolResult, tool
from agentkit.tools.types import by_name
from agentkit_tools.dispatch import call_tools
from tests.waiting import eventually

log: list[str] = []


class ListenerError(Exception):
    """Raised by a listener."""


@pytest.fixture(autouse=True)
def empty_log() -> None:
    log.clear()


@tool
async def slow(n: int) -> str:
    log.append(f"start {n}")
    await asyncio.sleep(0.2 / n)  # long pauses: the calls start one after the other
    log.append(f"end {n}")
    return f"slow {n}"


@tool(sequential=True)
async def alone(n: int) -> str:
    log.append(f"alone {n}")
    await asyncio.sleep(0)
    log.append(f"over {n}")
    return f"alone {n}"


TOOLS = by_name([slow, alone])


def call(name: str, n: int) -> ToolCall:
    return ToolCall(f"id{n}", name, f'{{"n": {n}}}')


def context(call: ToolCall) -> ToolContext[Any]:
    return ToolContext(None, "run", call.id)


async def test_calls_run_together_and_have_results_in_call_order() -> None:
    with controlled_time():
        results = await call_tools([call("slow", 1), call("slow", 2), call("slow", 4)], TOOLS, context)
    assert [result.content for result in results] == ["slow 1", "slow 2", "slow 4"]
    assert log == ["start 1", "start 2", "start 4", "end 4", "end 2", "end 1"]


async def test_a_sequential_call_waits_and_later_calls_wait_for_it() -> None:
    calls = [call("slow", 1), call("slow", 2), call("alone", 3), call("alone", 4), call("slow", 5)]
    results = await call_tools(calls, TOOLS, context)
    assert [result.call_id for result in results] == ["id1", "id2", "id3", "id4", "id5"]
    assert log[-6:] == ["alone 3", "over 3", "alone 4", "over 4", "start 5", "end 5"]
    assert set(log[:4]) == {"start 1", "start 2", "end 1", "end 2"}


async def test_no_calls_have_no_results_and_unknown_tools_an_answer() -> None:
    assert await call_tools([], TOOLS, context) == []
    (result,) = await call_tools([call("slwo", 1)], TOOLS, context)
    assert (result.status, "slow" in str(result.content)) == ("error", True)


@pytest.mark.parametrize("waiting", [(), (1,), (2,), (3,), (1, 3), (2, 3), (1, 2, 3)])
async def test_each_call_has_a_separate_context(waiting: tuple[int, ...]) -> None:
    seen: dict[int, list[str]] = {}

    @tool
    async def note(n: int) -> str:
        seen[n] = [who.get()]
        who.set(f"call {n}")
        if n in waiting:
            await asyncio.sleep(0)
        seen[n].append(who.get())
        return f"note {n}"

    who: ContextVar[str] = ContextVar("who", default="caller")
    numbers = [1, 2, 3]
    results = await call_tools([call("note", n) for n in numbers], by_name([note]), context)
    assert [result.content for result in results] == ["note 1", "note 2", "note 3"]
    assert seen == {n: ["caller", f"call {n}"] for n in numbers}
    for n in numbers:  # without other calls
        await call_tools([call("note", n)], by_name([note]), context)
    assert who.get() == "caller"


async def test_a_call_that_fails_before_others_start_leaves_no_coroutine(
    recwarn: pytest.WarningsRecorder,
) -> None:
    def on_end(result: ToolResult) -> None:
        raise ListenerError

    @tool(description="Return at once.")
    async def quick(n: int) -> str:
        return "done"

    with pytest.raises(ListenerError):
        await call_tools([call("quick", n) for n in (1, 2, 3)], by_name([quick]), context, on_end=on_end)
    gc.collect()
    assert [str(one.message) for one in recwarn] == []  # such as "was never awaited"


async def test_listeners_receive_every_start_and_end() -> None:
    started: list[str] = []
    ended: list[str] = []

    def on_end(result: ToolResult) -> None:
        ended.append(result.call_id)

    calls = [call("slow", 1), call("nothing", 2), call("slow", 3)]
    with controlled_time():
        await call_tools(calls, TOOLS, context, on_start=lambda one: started.append(one.id), on_end=on_end)
    assert started == ["id1", "id2", "id3"]
    assert ended == ["id2", "id3", "id1"]


async def test_cancelling_the_round_cancels_every_call() -> None:
    begun, ended = list[int](), list[str]()

    @tool
    async def forever(n: int) -> None:
        begun.append(n)
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("cancelled")

    tools = by_name([forever])
    round_ = asyncio.ensure_future(call_tools([call("forever", 1), call("forever", 2)], tools, context))
    await eventually(lambda: len(begun) == 2)
    round_.cancel()
    with pytest.raises(asyncio.CancelledError):
        await round_
    assert ended == ["cancelled", "cancelled"]


async def test_a_listener_that_fails_stops_the_round() -> None:
    def on_end(result: ToolResult) -> None:
        raise ListenerError

    with pytest.raises(ListenerError):
        await call_tools([call("slow", 1), call("slow", 2)], TOOLS, context, on_end=on_end)


async def test_an_exception_of_a_listener_of_a_later_call_is_raised_after_the_earlier_calls() -> None:
    def ended(result: ToolResult) -> None:
        if result.call_id == "id4":
            raise ListenerError

    with pytest.raises(ListenerError):
        await call_tools([call("slow", 1), call("slow", 2), call("slow", 4)], TOOLS, context, on_end=ended)
    assert log == ["start 1", "start 2", "start 4", "end 4", "end 2", "end 1"]


async def stubborn() -> None:
    """Ignores its cancellation until the test is over."""
    while "over" not in log:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue


async def waits_for_a_stubborn_task() -> None:
    await asyncio.create_task(stubborn())


async def is_stubborn_when_it_is_closed() -> None:
    try:
        await stubborn()
    finally:
        await asyncio.sleep(60)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("function", [stubborn, waits_for_a_stubborn_task, is_stubborn_when_it_is_closed])
@pytest.mark.parametrize("retries", [0, 1])
async def test_a_call_that_ignores_its_time_limit_ends_before_slower_calls(function: Any, retries: int) -> None:
    ended: list[tuple[str, str, str]] = []
    who: ContextVar[str] = ContextVar("who", default="")
    hanging = Tool(function, name="hanging", timeout=1, retries=retries, backoff=0)

    @tool
    async def later() -> str:
        await asyncio.sleep(30)
        return "done"

    async def on_end(result: ToolResult) -> None:
        ended.append((result.call_id, result.status, who.get()))
        await asyncio.sleep(0.1)

    calls = [ToolCall("a", "later", ""), ToolCall("b", "hanging", ""), ToolCall("c", "hanging", "")]

    def on_start(call: ToolCall) -> None:
        who.set(call.id)

    with controlled_time() as clock:
        results = await call_tools(calls, by_name([later, hanging]), context, on_start=on_start, on_end=on_end)
        seconds = clock.seconds
    assert [result.status for result in results] == ["success", "timeout", "timeout"]
    assert ended == [("b", "timeout", "b"), ("c", "timeout", "c"), ("a", "success", "a")]
    assert seconds == pytest.approx(30.1)
    log.append("over")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("function", [stubborn, waits_for_a_stubborn_task, is_stubborn_when_it_is_closed])
async def test_cancelled_calls_that_ignore_it_end_without_events(function: Any) -> None:
    ended: list[ToolResult] = []
    hanging = Tool(function, name="hanging", timeout=60)
    calls = [ToolCall("a", "hanging", ""), ToolCall("b", "hanging", "")]
    with controlled_time() as clock:
        task = asyncio.create_task(call_tools(calls, by_name([hanging]), context, on_end=ended.append))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(1)
        assert clock.seconds < 10
    assert ended == []
    log.append("over")


async def test_a_call_that_is_cancelled_while_it_ignores_its_time_limit_ends() -> None:
    hanging = Tool(stubborn, name="hanging", timeout=1)
    with controlled_time() as clock:
        task = asyncio.create_task(call_tools([ToolCall("a", "hanging", "")], by_name([hanging]), context))
        await asyncio.sleep(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert clock.seconds < 5
    log.append("over")


def test_calls_that_are_closed_outside_of_their_loop_are_cancelled() -> None:
    ended: list[str] = []

    @tool
    async def waits(n: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    async def begin() -> Any:
        calls = call_tools([call("waits", 1), call("waits", 2)], by_name([waits]), context)
        calls.send(None)
        await asyncio.sleep(0)
        return calls

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(begin()).close()
        assert ended == []
        loop.run_until_complete(asyncio.sleep(0))
        assert ended == ["cancelled", "cancelled"]
    finally:
        loop.close()


async def test_a_late_call_with_an_answer_has_its_result() -> None:
    @tool(timeout=1)
    async def late(n: int) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return "late"

    @tool(timeout=1)
    async def cleans_up(n: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1)

    async def on_end(result: ToolResult) -> None:
        await asyncio.sleep(10)
        current = asyncio.current_task()
        assert current is not None and current.cancelling() == 0

    with controlled_time() as clock:
        calls = [call("late", 1), call("cleans_up", 2)]
        results = await call_tools(calls, by_name([late, cleans_up]), context, on_end=on_end)
        assert clock.seconds == pytest.approx(12)
    assert [result.status for result in results] == ["success", "timeout"]


async def test_a_tool_that_cancels_its_task_cancels_the_run() -> None:
    @tool
    async def cancels(n: int) -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(60)

    with pytest.raises(asyncio.CancelledError):
        await call_tools([call("slow", 1), call("cancels", 2)], by_name([slow, cancels]), context)


async def test_a_task_group_that_fails_is_an_error_of_its_call_only() -> None:
    async def fails() -> None:
        raise ValueError

    @tool
    async def grouped(n: int) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            group.create_task(asyncio.sleep(60))

    ended: list[str] = []

    async def on_end(result: ToolResult) -> None:
        await asyncio.sleep(0.01)
        ended.append(result.status)

    calls = [call("grouped", 1), call("slow", 2)]
    results = await call_tools(calls, by_name([slow, grouped]), context, on_end=on_end)
    assert [result.status for result in results] == ["error", "success"]
    assert sorted(ended) == ["error", "success"]
