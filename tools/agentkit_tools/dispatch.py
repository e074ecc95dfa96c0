"""Concurrent and sequential execution of the tool calls of one assistant message, and their approval."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.deadline import outcome
from agentkit_tools.calling.tool_result import ToolResult, unknown_tool
from agentkit_tools.calling.tool_threads import run_in_thread
from agentkit_tools.errors import ends_run, readable_error
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

_UNSEEN: ToolContext[Any] = ToolContext(None)
"""Context of calls of tools that do not read it."""


async def call_tools(
    calls: Sequence[ToolCall],
    tools: Mapping[str, Tool],
    context: Callable[[ToolCall], ToolContext[Any]],
    *,
    on_start: Callable[[ToolCall], Awaitable[None] | None] | None = None,
    on_end: Callable[[ToolResult], Awaitable[None] | None] | None = None,
) -> list[ToolResult]:
    """Return the results of the calls of one assistant message, in call order.

    Calls run concurrently, each in its own context (of `contextvars`). A call of a sequential tool waits for all
    calls before it, and the calls after it wait for it. The result of a call of an unknown tool lists the valid names.
    `on_start` receives every call when it starts, `on_end` every result as soon as it exists; if they return an
    awaitable, it is awaited.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled; the running calls were cancelled too.
        BaseException: `on_start` or `on_end` raised an exception, or a tool ended the run, see `ends_run`. The other
            calls were cancelled.
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


async def call_to_approve(tool: Tool, call: ToolCall, context: ToolContext[Any]) -> ToolCall | None:
    """Return the call for the person who must approve it, see `Tool.as_received`; None if it needs no approval."""
    if not await tool.needs_approval(call, context):
        return None
    return await received_call(tool, call)


async def received_call(tool: Tool, call: ToolCall) -> ToolCall:
    """Return the call with the arguments that the tool receives; the same call if its arguments are invalid."""
    received, error = await run_in_thread(partial(tool.as_received, call), tool.policy.timeout)
    # The validation failed or exceeded its time limit, as in `needs_approval`.
    if error is not None:
        return call
    return received


@dataclass(slots=True)
class _Round:
    """The tools and listeners of the calls of one message."""

    tools: Mapping[str, Tool]
    context: Callable[[ToolCall], ToolContext[Any]]
    on_start: Callable[[ToolCall], Awaitable[None] | None] | None
    on_end: Callable[[ToolResult], Awaitable[None] | None] | None

    async def answer_all(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Return the results of calls that run concurrently."""
        batch = _Batch()
        for number, call in enumerate(calls):
            if batch.has_failed:
                # An eager task runs when it is created, so a call can fail before the next task is created.
                break
            batch.tasks.append(asyncio.create_task(self._answer_in_task(call, batch, number)))
        return await batch.results()

    async def _answer_in_task(self, call: ToolCall, batch: _Batch, number: int) -> ToolResult | None:
        """Return the result of a call; None if the batch has failed."""
        try:
            return await self._answer(call)
        except GeneratorExit:
            # The coroutine is closed, possibly outside of its event loop.
            raise
        except BaseException as error:
            # Not raised: asyncio raises a `KeyboardInterrupt` of a task also from the event loop.
            batch.fail(readable_error(error), number)
            return None

    async def _answer(self, call: ToolCall) -> ToolResult:
        if self.on_start is not None and (awaitable := self.on_start(call)) is not None:
            await _heard(awaitable)
        tool = self.tools.get(call.name)
        if tool is None:
            result = unknown_tool(call, self.tools)
        else:
            result = await tool.call(call, self.context(call) if tool.sees_context else _UNSEEN)
        if self.on_end is not None and (awaitable := self.on_end(result)) is not None:
            await _heard(awaitable)
        return result


async def _heard(awaitable: Awaitable[None]) -> None:
    """Await a listener, which is abandoned if it ignores its cancellation."""

    async def wait() -> None:
        await awaitable

    _, error = await outcome(wait(), None)
    if error is not None:
        raise error


class _Batch:
    """Calls that run concurrently, each in its task."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[ToolResult | None]] = []
        self._cancelled: set[asyncio.Task[ToolResult | None]] = set()
        self._error: BaseException | None = None

    @property
    def has_failed(self) -> bool:
        """True if a call has failed."""
        return self._error is not None

    def fail(self, error: BaseException, number: int) -> None:
        """Record an exception of the call `number`, and cancel calls.

        After an exception of a listener, the calls before it finish. A cancellation, and an exception that ends the
        run, cancel all calls.
        """
        is_final = ends_run(error)
        if self._error is None or (is_final and not ends_run(self._error)):
            self._error = error
        if is_final or isinstance(error, asyncio.CancelledError):
            self._cancel(self.tasks[:number])
        self._cancel(self.tasks[number + 1 :])

    def _cancel(self, tasks: Iterable[asyncio.Task[ToolResult | None]]) -> None:
        """Cancel tasks that were not cancelled before: a second cancellation would interrupt the cleanup of a tool."""
        for task in tasks:
            if task not in self._cancelled:
                self._cancelled.add(task)
                task.cancel()

    async def results(self) -> list[ToolResult]:
        """Return the results in the order of the calls, when all calls have finished.

        Raises:
            asyncio.CancelledError: This task was cancelled, which cancels the calls.
            BaseException: The first exception of a call, or the first exception that ends the run.
        """
        pending = set(self.tasks)
        while pending:
            try:
                _, pending = await asyncio.wait(pending)
            except asyncio.CancelledError as cancellation:
                # anyio repeats its cancellation until the calls have finished.
                if self._error is None or not ends_run(self._error):
                    self._error = cancellation
                self._cancel(self.tasks)
                pending = {task for task in pending if not task.done()}
            except GeneratorExit:
                # A coroutine that is closed cannot await.
                self._cancel(self.tasks)
                raise
        if self._error is not None:
            raise self._error
        results = [task.result() for task in self.tasks]
        return [result for result in results if result is not None]
