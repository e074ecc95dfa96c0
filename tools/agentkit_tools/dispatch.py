"""The calls of one assistant message: which run together, which wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextvars import Context, copy_context
from functools import partial
from types import coroutine
from typing import Any, TypeAlias, TypeVar, cast

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.tool_result import ToolResult, unknown_tool
from agentkit_tools.errors import ends_run
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

__all__ = ["call_tools"]

T = TypeVar("T")
_Answer: TypeAlias = Callable[[ToolCall], Coroutine[Any, Any, ToolResult]]
_UNSEEN: ToolContext[Any] = ToolContext(None)
"""The context of calls that do not look at it."""


async def call_tools(
    calls: Sequence[ToolCall],
    tools: Mapping[str, Tool],
    context: Callable[[ToolCall], ToolContext[Any]],
    *,
    on_start: Callable[[ToolCall], Awaitable[None] | None] | None = None,
    on_end: Callable[[ToolResult], Awaitable[None] | None] | None = None,
) -> list[ToolResult]:
    """Answer the calls of one assistant message, in call order.

    Calls run concurrently, each in a context (of `contextvars`) of its own. A call of a sequential tool waits for all
    calls before it, and those after it wait for it. A call of an unknown tool is answered with the names there are.
    `on_start` receives every call when it begins, `on_end` every result as soon as it is there; what they return is
    awaited.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled; the calls under way were cancelled too.
        BaseException: What `on_start` or `on_end` raised, or a tool, where it does not derive from `Exception`; the
            other calls were cancelled.
    """
    answer = partial(_answer, tools, context, on_start, on_end)
    results: list[ToolResult] = []
    batch: list[ToolCall] = []
    for call in calls:
        tool = tools.get(call.name)
        if tool is not None and tool.policy.sequential:
            results += await _together(batch, answer)
            batch = []
            results += await _together([call], answer)
        else:
            batch.append(call)
    return results + await _together(batch, answer)


async def _answer(
    tools: Mapping[str, Tool],
    context: Callable[[ToolCall], ToolContext[Any]],
    on_start: Callable[[ToolCall], Awaitable[None] | None] | None,
    on_end: Callable[[ToolResult], Awaitable[None] | None] | None,
    call: ToolCall,
) -> ToolResult:
    if on_start is not None and (taken := on_start(call)) is not None:
        await taken
    tool = tools.get(call.name)
    if tool is None:
        result = unknown_tool(call, tools)
    else:
        result = await tool.call(call, context(call) if tool.sees_context else _UNSEEN)
    if on_end is not None and (taken := on_end(result)) is not None:
        await taken
    return result


async def _together(batch: Sequence[ToolCall], answer: _Answer) -> list[ToolResult]:
    """Answer calls concurrently, each in a context of its own; what ends the run cancels the others at once.

    A call that never waits needs no task: only those behind one that does get tasks.
    """
    results: list[ToolResult] = []
    for number, call in enumerate(batch, 1):
        context, work = copy_context(), answer(call)
        try:
            waiting = context.run(work.send, None)
        except StopIteration as end:
            results.append(end.value)
        else:
            return results + await _beside(_rest(work, waiting, context), batch[number:], answer)
    return results


@coroutine
def _rest(work: Coroutine[Any, Any, T], waiting: Any, context: Context) -> Generator[Any, Any, T]:
    """Go on with `work`, which was begun in `context` and waits for `waiting`; return what it returns."""
    try:
        while True:
            try:
                received = yield waiting
            except GeneratorExit:
                context.run(work.close)
                raise
            except BaseException as error:
                waiting = context.run(work.throw, error)
            else:
                waiting = context.run(work.send, received)
    except StopIteration as end:
        return cast(T, end.value)


async def _beside(first: Awaitable[ToolResult], others: Sequence[ToolCall], answer: _Answer) -> list[ToolResult]:
    """Await the first call while the others are answered in tasks."""
    around = cast("asyncio.Task[Any]", asyncio.current_task())
    raised: list[BaseException] = []
    start = asyncio.get_running_loop().create_task
    tasks = [start(_watched(call, answer, raised, around)) for call in others]
    before = around.cancelling()
    try:
        results = [await first]
        for task in tasks:
            results.append(await task)
        return results
    except BaseException as error:
        cause = raised[0] if raised else error
        is_ours = bool(raised)
        raised.append(error)  # from here on nobody cancels this task any more
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if is_ours and around.uncancel() <= before:  # nor did anybody else
            raise cause  # noqa: B904 (it has its own cause)
        raise


async def _watched(
    call: ToolCall, answer: _Answer, raised: list[BaseException], around: asyncio.Task[Any]
) -> ToolResult:
    """Answer a call; note what ends the run first, and cancel the task around, which raises it.

    This task does not: asyncio throws some exceptions out of its loop at once, before the run could end in order.
    """
    try:
        return await answer(call)
    except BaseException as error:
        if not ends_run(error):
            raise
        if not raised:
            raised.append(error)
            around.cancel()
        if isinstance(error, GeneratorExit):
            raise
        raise asyncio.CancelledError from error
