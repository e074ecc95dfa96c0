"""The calls of one assistant message: which run together, which wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.tool_result import ToolResult, unknown_tool
from agentkit_tools.errors import ends_run
from agentkit_tools.tool import Tool
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
        BaseException: What `on_start` or `on_end` raised, or a tool, where it does not derive from `Exception`; the
            other calls were cancelled.
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
    """Run calls concurrently; what ends the run cancels the others at once."""
    if len(batch) < 2:
        return [await work for work in batch]
    around = asyncio.current_task()
    raised: list[BaseException] = []

    async def watched(work: Coroutine[Any, Any, ToolResult]) -> ToolResult:
        try:
            return await work
        except BaseException as error:
            if ends_run(error) and not raised and around is not None:
                raised.append(error)
                around.cancel()
            raise

    start = asyncio.get_running_loop().create_task
    tasks = [start(watched(work)) for work in batch[1:]]
    before = 0 if around is None else around.cancelling()
    try:
        first = await batch[0]  # needs no task: it runs while the others do
        return [first, *[await task for task in tasks]]
    except BaseException as error:
        cause = raised[0] if raised else error
        is_ours = bool(raised)
        raised.append(error)  # from here on nobody cancels this task any more
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for work in batch:
            work.close()  # one that was cancelled before it began
        if is_ours and around is not None and around.uncancel() <= before:  # nor did anybody else
            raise cause  # noqa: B904 (it has its own cause)
        raise
