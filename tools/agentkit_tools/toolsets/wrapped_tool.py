"""A tool around a tool: the same to the model, with something of one's own before and after each call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias, cast

from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.errors import check_types
from agentkit_tools.calling.deadline import outcome
from agentkit_tools.calling.tool_result import ToolResult, failed
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

__all__ = ["Around", "Proceed", "WrappedTool"]

Proceed: TypeAlias = Callable[[ToolCall, ToolContext[Any]], Awaitable[ToolResult]]
"""Makes the call that was wrapped."""


Around: TypeAlias = Callable[[Proceed, ToolCall, ToolContext[Any]], Awaitable[ToolResult]]


class WrappedTool(Tool):
    """A tool whose calls go through `around(proceed, call, context)`; wrap it again and the newer one comes first."""

    __slots__ = ("_arounds",)

    def __init__(self, inner: Tool, around: Around) -> None:
        check_types(
            ToolDefinitionError,
            "WrappedTool",
            inner=(inner, Tool, "a Tool"),
            around=(around, Callable, "an async function"),  # type: ignore[arg-type]
        )
        # A copy with the same spec and policy: only its calls differ.
        for slot in Tool.__slots__:
            if slot != "__weakref__":
                setattr(self, slot, getattr(inner, slot))
        self._arounds: tuple[Around, ...] = (*getattr(inner, "_arounds", ()), around)

    async def call(self, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Answer a call through the wrappers; an exception that they raise becomes an error result."""
        proceed: Proceed = super().call
        for around in self._arounds:
            proceed = partial(around, proceed)
        result, error = await outcome(_checked(proceed, call, context), None)
        if error is not None:
            return failed(call, error, self.policy)
        return cast(ToolResult, result)


async def _checked(proceed: Proceed, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
    result: object = await proceed(call, context)
    if not isinstance(result, ToolResult):
        raise TypeError(f"a wrapper returns the ToolResult of the call, not {type(result).__name__}")
    return result.checked()
