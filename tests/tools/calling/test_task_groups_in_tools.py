"""A tool may use task groups: an error in a task of a group affects only this tool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentkit.prompts import ToolCall
from agentkit.tools import Tool, ToolContext, ToolResult, Toolset, tool
from agentkit_tools.dispatch import call_tools
from tests.waiting import LONG


async def fails() -> None:
    raise ValueError("a task")


async def fails_later() -> None:
    await asyncio.sleep(0.01)
    raise ValueError("a task")


async def cleans_up() -> None:
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.05)


async def at_its_end() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fails())
        group.create_task(asyncio.sleep(60))


async def later() -> None:
    await asyncio.sleep(0)
    async with asyncio.TaskGroup() as group:
        group.create_task(fails_later())
        group.create_task(cleans_up())


async def in_its_body() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fails())
        await asyncio.sleep(60)


async def nested() -> None:
    async with asyncio.TaskGroup() as outer:
        outer.create_task(at_its_end())
        async with asyncio.TaskGroup() as inner:
            inner.create_task(fails_later())


async def twice() -> None:
    for last in (False, True):
        try:
            await at_its_end()
        except* ValueError:
            if last:
                raise


async def ask(made: Tool) -> ToolResult:
    return await made.call(ToolCall("c", made.name, ""), ToolContext(None, "r", "c"))


@pytest.mark.parametrize("function", [at_its_end, later, in_its_body, nested, twice])
async def test_a_task_of_a_group_that_fails_is_an_error_of_the_tool(function: Any) -> None:
    result = await ask(Tool(function, timeout=LONG))
    assert result.status == "error"
    assert "a task" in str(result.content)
    current = asyncio.current_task()
    assert current is not None and current.cancelling() == 0
    await asyncio.sleep(0)  # no cancellation follows


async def test_a_tool_that_answers_in_spite_of_it_has_answered() -> None:
    @tool
    async def part() -> str:
        try:
            await at_its_end()
        except* ValueError:
            pass
        return "a part"

    assert (await ask(part)).content == "a part"


async def test_a_wrapper_may_use_a_task_group_too() -> None:
    async def around(proceed: Any, call: Any, context: Any) -> Any:
        try:
            await later()
        except* ValueError:
            pass
        return await proceed(call, context)

    async def quick() -> str:
        return "quick"

    assert (await ask(Toolset([quick]).wrapped(around)[0])).content == "quick"


@pytest.mark.parametrize("function", [at_its_end, in_its_body, later])
@pytest.mark.parametrize("after", [0.0, 0.02])
async def test_a_cancellation_of_the_calls_of_a_message_meanwhile_cancels_them(function: Any, after: float) -> None:
    """Also while the group waits for a task that ends slowly."""

    async def slowly() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(cleans_up())
            await asyncio.sleep(0.01)
            await function()

    tools = {"slowly": Tool(slowly, timeout=LONG)}
    calls = call_tools([ToolCall("c", "slowly", "")], tools, lambda call: ToolContext(None, "r", call.id))
    task = asyncio.create_task(calls)
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_time_limit_applies_to_a_group() -> None:
    async def slow() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(60))
            group.create_task(cleans_up())

    result = await ask(Tool(slow, timeout=0.05))
    assert result.status == "timeout"
