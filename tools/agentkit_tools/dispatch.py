"""The calls of one assistant message: which run together, which wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.deadline import DeadlineError, LimitedTask, results
from agentkit_tools.calling.failures_in_a_row import after
from agentkit_tools.calling.tool_result import ToolResult, failed, unknown_tool
from agentkit_tools.errors import ends_run
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

__all__ = ["call_tools"]

_Answer: TypeAlias = Callable[[LimitedTask[ToolResult]], Awaitable[ToolResult]]
"""Answers one call in a task."""
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
    answers: list[ToolResult] = []
    batch: list[ToolCall] = []
    for call in calls:
        tool = tools.get(call.name)
        if tool is not None and tool.policy.sequential:
            answers += await round_.answer_all(batch)
            answers += await round_.answer_all([call])
            batch = []
        else:
            batch.append(call)
    return answers + await round_.answer_all(batch)


@dataclass(frozen=True, slots=True)
class _Round:
    """The tools and listeners of the calls of one message."""

    tools: Mapping[str, Tool]
    context: Callable[[ToolCall], ToolContext[Any]]
    on_start: Callable[[ToolCall], Awaitable[None] | None] | None
    on_end: Callable[[ToolResult], Awaitable[None] | None] | None

    async def answer_all(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Answer calls concurrently."""
        tasks: list[LimitedTask[ToolResult]] = []
        for call in calls:
            work = partial(self._in_task, partial(self._answer, call), tasks)
            instead = partial(self._in_task, partial(self._answer_late, call), tasks)
            tasks.append(LimitedTask(work, instead))
        return await results(tasks)

    async def _in_task(
        self, answer: _Answer, batch: Sequence[LimitedTask[ToolResult]], task: LimitedTask[ToolResult]
    ) -> ToolResult:
        """Answer a call in a task; an exception that ends the run cancels the other tasks of the batch at once."""
        try:
            return await answer(task)
        except BaseException as error:
            if ends_run(error) and not isinstance(error, GeneratorExit):
                for other in batch:
                    if other is not task:
                        other.cancel()
            raise

    async def _answer(self, call: ToolCall, task: LimitedTask[ToolResult]) -> ToolResult:
        if self.on_start is not None and (waiting := self.on_start(call)) is not None:
            await waiting
        tool = self.tools.get(call.name)
        if tool is None:
            return await self._ended(unknown_tool(call, self.tools))
        return await self._ended(await tool.call_within(call, self._context_of(tool, call), task.within))

    async def _answer_late(self, call: ToolCall, _: LimitedTask[ToolResult]) -> ToolResult:
        """Answer a call whose tool ignored its time limit."""
        tool = self.tools[call.name]
        result = failed(call, DeadlineError(), tool.policy)
        return await self._ended(after(result, tool.policy, call, self._context_of(tool, call)))

    def _context_of(self, tool: Tool, call: ToolCall) -> ToolContext[Any]:
        if tool.sees_context:
            return self.context(call)
        return _UNSEEN

    async def _ended(self, result: ToolResult) -> ToolResult:
        if self.on_end is not None and (waiting := self.on_end(result)) is not None:
            await waiting
        return result
