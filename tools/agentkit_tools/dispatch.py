"""The calls of one assistant message: which run together, which wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.deadline import DeadlineError, LimitedTask, Outcome, Within, grace_around, outcome
from agentkit_tools.calling.tool_result import ToolResult, failed, unknown_tool
from agentkit_tools.errors import ends_run
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

__all__ = ["call_tools"]

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

    Calls run concurrently, each in its own context (of `contextvars`). A call of a sequential tool waits for all
    calls before it, and the calls after it wait for it. A call of an unknown tool is answered with the known names.
    `on_start` receives every call when it begins, `on_end` every result as soon as it exists; if they return an
    awaitable, it is awaited.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled; the calls under way were cancelled too.
        BaseException: `on_start` or `on_end` raised it, or a tool did and it does not derive from `Exception`. The
            other calls were cancelled.
    """
    round_ = _Round(tools, context, on_start, on_end)
    results: list[ToolResult] = []
    batch: list[ToolCall] = []
    for call in calls:
        tool = tools.get(call.name)
        if tool is not None and tool.policy.sequential:
            results += await round_.answer_all(batch)
            results += await round_.answer_all([call])
            batch = []
        else:
            batch.append(call)
    return results + await round_.answer_all(batch)


@dataclass(frozen=True, slots=True)
class _Round:
    """The tools and listeners of the calls of one message."""

    tools: Mapping[str, Tool]
    context: Callable[[ToolCall], ToolContext[Any]]
    on_start: Callable[[ToolCall], Awaitable[None] | None] | None
    on_end: Callable[[ToolResult], Awaitable[None] | None] | None

    async def answer_all(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Answer calls concurrently."""
        if len(calls) == 1:
            return [await self._answer(calls[0], outcome)]
        tasks: list[LimitedTask[ToolResult]] = []
        for call in calls:
            task: LimitedTask[ToolResult] = LimitedTask(grace_around(), partial(self._answer_late, call))
            task.start(self._answer_in_task(call, task, tasks))
            tasks.append(task)
        try:
            return [_value(await task.ended) for task in tasks]
        except BaseException as error:
            for task in tasks:
                task.cancel()
            # A coroutine that is closed cannot await.
            if isinstance(error, GeneratorExit):
                raise
            reason = error
            for task in tasks:
                reason = await task.left(reason)
            if reason is error:
                raise
            raise reason  # noqa: B904 (it has its own cause)

    async def _answer_in_task(
        self, call: ToolCall, task: LimitedTask[ToolResult], batch: Sequence[LimitedTask[ToolResult]]
    ) -> ToolResult:
        """Answer a call in a task; an exception that ends the run cancels the other tasks of the batch at once."""
        try:
            return await self._answer(call, task.within)
        except BaseException as error:
            if isinstance(error, GeneratorExit) or not ends_run(error):
                raise
            for other in batch:
                if other is not task:
                    other.cancel()
            raise

    async def _answer(self, call: ToolCall, within: Within) -> ToolResult:
        if self.on_start is not None and (waiting := self.on_start(call)) is not None:
            await waiting
        tool = self.tools.get(call.name)
        if tool is None:
            result = unknown_tool(call, self.tools)
        else:
            context = _UNSEEN
            if tool.sees_context:
                context = self.context(call)
            result = await tool.call_within(call, context, within)
        return await self._ended(result)

    async def _answer_late(self, call: ToolCall) -> ToolResult:
        """Answer a call whose tool ignored its time limit."""
        return await self._ended(failed(call, DeadlineError(), self.tools[call.name].policy))

    async def _ended(self, result: ToolResult) -> ToolResult:
        if self.on_end is not None and (waiting := self.on_end(result)) is not None:
            await waiting
        return result


def _value(end: Outcome[ToolResult]) -> ToolResult:
    if end.error is not None:
        raise end.error
    return cast(ToolResult, end.value)
