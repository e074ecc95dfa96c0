"""A tool around a tool: the same to the model, with something of one's own before and after each call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from agentkit_prompts.messages import ToolCall
from agentkit_tools.context import ToolContext
from agentkit_tools.result import ToolResult
from agentkit_tools.tool import Tool

__all__ = ["Proceed", "WrappedTool"]

Proceed: TypeAlias = Callable[[ToolCall, ToolContext[Any]], Awaitable[ToolResult]]
"""Makes the call that was wrapped."""


class WrappedTool(Tool):
    """A tool whose calls go through `around(proceed, call, context)`."""

    __slots__ = ("_around", "_inner")

    def __init__(
        self, inner: Tool, around: Callable[[Proceed, ToolCall, ToolContext[Any]], Awaitable[ToolResult]]
    ) -> None:
        for slot in Tool.__slots__:
            if slot != "__weakref__":
                setattr(self, slot, getattr(inner, slot))
        self._inner = inner
        self._around = around

    def _copy(self) -> WrappedTool:
        return WrappedTool(self._inner, self._around)

    async def call(self, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Answer a call through the wrapper; an error of the wrapper becomes an error result."""
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        try:
            return await self._around(super().call, call, context)
        except BaseException as error:
            outside = task is not None and task.cancelling() > cancelled_before
            if isinstance(error, KeyboardInterrupt) or (outside and isinstance(error, asyncio.CancelledError)):
                raise
            return self._failed(call, error)
