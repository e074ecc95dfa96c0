"""The calls of one assistant message: which run together, which wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool, unknown_tool
from agentkit_tools.tool_context import ToolContext

__all__ = ["call_tools"]


async def call_tools(
    calls: Sequence[ToolCall],
    tools: Mapping[str, Tool],
    context: Callable[[ToolCall], ToolContext[Any]],
    *,
    on_start: Callable[[ToolCall], Awaitable[None] | None] | None = None,
    on_end: Callable[[ToolResult], Awaitable[None] | None] | None = None,
) -> list[ToolResult]:
    """Answer the calls of one assistant message, in call order.

    Calls run concurrently. A call of a sequential tool waits for all calls before it, and those after it wait for it. A
    call of an unknown tool is answered with the names there are. `on_start` receives every call when it begins,
    `on_end` every result as soon as it is there; what they return is awaited.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled; the calls under way were cancelled too.
        Exception: What `on_start` or `on_end` raised; the other calls were cancelled.
    """
    results: list[ToolResult] = []
    batch: list[Coroutine[Any, Any, ToolResult]] = []
    for call in calls:
        tool = tools.get(call.name)
        if tool is not None and tool.policy.sequential:
            results += await _together(batch)
            batch = []
            results.append(await _answer(call, tools, context, on_start, on_end))
        else:
            batch.append(_answer(call, tools, context, on_start, on_end))
    return results + await _together(batch)


async def _answer(
    call: ToolCall,
    tools: Mapping[str, Tool],
    context: Callable[[ToolCall], ToolContext[Any]],
    on_start: Callable[[ToolCall], Awaitable[None] | None] | None,
    on_end: Callable[[ToolResult], Awaitable[None] | None] | None,
) -> ToolResult:
    if on_start is not None and (taken := on_start(call)) is not None:
        await taken
    tool = tools.get(call.name)
    result = unknown_tool(call, tools) if tool is None else await tool.call(call, context(call))
    if on_end is not None and (taken := on_end(result)) is not None:
        await taken
    return result


async def _together(batch: Sequence[Coroutine[Any, Any, ToolResult]]) -> list[ToolResult]:
    start = asyncio.get_running_loop().create_task
    tasks = [start(work) for work in batch[1:]]
    try:
        first = [await work for work in batch[:1]]  # needs no task either: it runs while the others do
        return first + [await task for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
