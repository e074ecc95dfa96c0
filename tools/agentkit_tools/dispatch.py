"""The calls of one assistant message: which run together, which wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentkit_prompts.messages import ToolCall
from agentkit_tools.context import ToolContext
from agentkit_tools.result import ToolResult
from agentkit_tools.tool import Tool, unknown_tool

__all__ = ["call_tools"]


async def call_tools(
    calls: Sequence[ToolCall],
    tools: Mapping[str, Tool],
    context: Callable[[ToolCall], ToolContext[Any]],
    *,
    on_start: Callable[[ToolCall], None] | None = None,
    on_end: Callable[[ToolResult], None] | None = None,
) -> list[ToolResult]:
    """Answer the calls of one assistant message, in call order.

    Calls run concurrently. A call of a sequential tool waits for all calls before it, and those after it wait for it.

    Args:
        calls: The calls, in the order the model wrote them.
        tools: The tools by name; a call of any other name is answered with the names there are.
        context: Makes the context of each call.
        on_start: Told about every call when it begins.
        on_end: Told about every result as soon as it is there.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled; the calls under way were cancelled too.
        Exception: What `on_start` or `on_end` raised; the other calls were cancelled.
    """

    async def answer(call: ToolCall) -> ToolResult:
        if on_start is not None:
            on_start(call)
        tool = tools.get(call.name)
        result = unknown_tool(call, tools) if tool is None else await tool.call(call, context(call))
        if on_end is not None:
            on_end(result)
        return result

    async def together(batch: Sequence[ToolCall]) -> list[ToolResult]:
        tasks = [asyncio.ensure_future(answer(call)) for call in batch[1:]]
        try:
            first = [await answer(call) for call in batch[:1]]  # needs no task either: it runs while the others do
            return first + [await task for task in tasks]
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    results: list[ToolResult] = []
    begin = 0
    for end, call in enumerate(calls):
        tool = tools.get(call.name)
        if tool is not None and tool.policy.sequential:
            results += await together(calls[begin:end])
            results.append(await answer(call))
            begin = end + 1
    return results + await together(calls[begin:])
