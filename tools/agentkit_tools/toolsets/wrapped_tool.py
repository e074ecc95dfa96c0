"""`WrappedTool`: a tool with the same description, whose calls go through a custom function."""

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

Proceed: TypeAlias = Callable[[ToolCall, ToolContext[Any]], Awaitable[ToolResult]]
"""Function that makes the wrapped call."""


Around: TypeAlias = Callable[[Proceed, ToolCall, ToolContext[Any]], Awaitable[ToolResult]]


class WrappedTool(Tool):
    """A tool whose calls go through `around(proceed, call, context)`. The outermost wrapper runs first."""

    __slots__ = ("_arounds",)

    def __init__(self, inner: Tool, around: Around) -> None:
        check_types(
            ToolDefinitionError,
            "WrappedTool",
            inner=(inner, Tool, "a Tool"),
            around=(around, Callable, "an async function"),  # type: ignore[arg-type]
        )
        # The copy has the same spec and policy; only its calls differ.
        for slot in Tool.__slots__:
            if slot != "__weakref__":
                setattr(self, slot, getattr(inner, slot))
        self._arounds: tuple[Around, ...] = (*getattr(inner, "_arounds", ()), around)

    async def call(self, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
        """Make a call through the wrappers; an exception of a wrapper becomes an error result."""
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
        raise TypeError(f"a wrapper must return the ToolResult of the call, got {type(result).__name__}")
    return result.checked()
