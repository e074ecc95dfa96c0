"""From a model's calls to their results: find the tool, run what may run together, answer in call order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from agentkit_prompts.messages import ToolCall
from agentkit_tools.context import ToolContext
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.result import ToolResult
from agentkit_tools.tool import Tool

__all__ = ["by_name", "call_tools", "unknown_tool"]


def by_name(tools: Iterable[Tool[..., Any] | Callable[..., Any]]) -> dict[str, Tool[..., Any]]:
    """Return tools by the name a model calls them by; plain functions become tools.

    Raises:
        ToolDefinitionError: Two tools have the same name; all such names are listed.
    """
    found: dict[str, Tool[..., Any]] = {}
    clashes: dict[str, None] = {}
    for item in tools:
        one = item if isinstance(item, Tool) else Tool.from_function(item)
        if found.setdefault(one.name, one) is not one:
            clashes[one.name] = None
    if clashes:
        raise ToolDefinitionError(
            f"more than one tool is named {', '.join(clashes)}: rename all but one with `tool.but(name=...)`"
        )
    return found


def unknown_tool(call: ToolCall, names: Iterable[str]) -> ToolResult:
    """Return the answer to a call of a tool that does not exist."""
    known = list(names)
    near = get_close_matches(call.name, known, n=3, cutoff=0.4)
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    elif known:
        hint = f"The tools are: {', '.join(known[:30])}{', ...' if len(known) > 30 else ''}."
    else:
        hint = "There are no tools."
    name = call.name.encode("utf-8", "replace").decode()[:100]
    return ToolResult(call.id, call.name, f"There is no tool named {name!r}. {hint}", "error")


async def call_tools(
    calls: Sequence[ToolCall],
    tools: Mapping[str, Tool[..., Any]],
    context: Callable[[ToolCall], ToolContext[Any]],
) -> list[ToolResult]:
    """Answer the calls of one assistant message, in call order.

    Calls run concurrently. A call of a sequential tool waits for all calls before it, and those after it wait for it.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled; the calls under way were cancelled too.
    """
    results: list[ToolResult] = []
    batch: list[tuple[Tool[..., Any], ToolCall] | ToolResult] = []
    for call in calls:
        found = tools.get(call.name)
        if found is not None and found.policy.sequential:
            results += await _together(batch, context)
            batch = []
            results.append(await found.call(call, context(call)))
        else:
            batch.append(unknown_tool(call, tools) if found is None else (found, call))
    return results + await _together(batch, context) if batch else results


async def _together(
    batch: Sequence[tuple[Tool[..., Any], ToolCall] | ToolResult], context: Callable[[ToolCall], ToolContext[Any]]
) -> list[ToolResult]:
    if len(batch) == 1 and not isinstance(batch[0], ToolResult):  # the usual case needs no task of its own
        found, call = batch[0]
        return [await found.call(call, context(call))]
    waiting: list[ToolResult | asyncio.Task[ToolResult]] = [
        item if isinstance(item, ToolResult) else asyncio.ensure_future(item[0].call(item[1], context(item[1])))
        for item in batch
    ]
    tasks = [item for item in waiting if not isinstance(item, ToolResult)]
    try:
        return [item if isinstance(item, ToolResult) else await item for item in waiting]
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
