"""`ToolResult`: result of a call, also of a call that failed."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.hints import hinted
from agentkit_prompts.names import nearest
from agentkit_tools.calling.deadline import DeadlineError
from agentkit_tools.calling.result_content import Collected, Content, cut, gather, to_content
from agentkit_tools.calling.tool_policy import ToolPolicy
from agentkit_tools.errors import ToolArgumentError, ToolFailure, describe_error, ends_run

ToolStatus = Literal["success", "error", "timeout", "denied", "cancelled", "too_large", "unavailable"]


@hinted
@dataclass(slots=True, repr=False)
class ToolResult:
    """Result of a tool call. Do not change it; it is not frozen because a frozen dataclass is five times slower.

    A tool can return a `ToolResult` to set status and content.
    """

    __repr__ = short_repr

    call_id: str
    name: str
    content: Content
    """Content for the model."""
    status: ToolStatus = "success"
    value: Any = None
    """Value of the function, if it returned."""
    error: BaseException | None = None
    """Exception of the call, if it failed."""
    whole: str | None = None
    """The complete text, if `content` was cut; with `Toolset.with_result_store`, the model can read the rest."""

    @property
    def ok(self) -> bool:
        """True if the function returned."""
        return self.status in ("success", "too_large")

    @property
    def has_failed(self) -> bool:
        """True if the call failed; False also for a call that was denied or cancelled."""
        return self.status in ("error", "timeout", "unavailable")

    @property
    def message(self) -> Message:
        """The tool message that answers the call."""
        return Message("tool", self.content, tool_call_id=self.call_id, name=self.name)

    def answering(self, call: ToolCall) -> ToolResult:
        """Return the result as the answer to `call`."""
        return replace(self, call_id=call.id, name=call.name)

    def checked(self) -> ToolResult:
        """Return the result with content that a model can be sent.

        Raises:
            ValueError: The status is unknown.
            TypeError, RecursionError: The content cannot be converted; see `to_content`.
        """
        if self.status not in get_args(ToolStatus):
            raise ValueError(f"status {self.status!r} is not one of {', '.join(get_args(ToolStatus))}")
        return replace(self, content=to_content(self.content, nothing=""))


# Exact types, because a subclass can be an iterator.
_PLAIN = frozenset((str, int, float, bool, type(None), dict, list))
"""Types of most results, which need no test for iterators, exceptions and results."""


def finished(call: ToolCall, value: Any, policy: ToolPolicy, nothing: str) -> ToolResult:
    """Return the result of a call that returned `value`; `nothing` is the content for None."""
    limit = policy.max_result_chars
    try:
        is_complete = True
        if type(value) not in _PLAIN:
            if isinstance(value, ToolResult):
                return _shortened(value.answering(call).checked(), limit)
            if isinstance(value, BaseException):
                return failed(call, value, policy)
            if isinstance(value, Iterator | range):
                value = gather(partial(iter, value), limit, join=False)
            if isinstance(value, Collected):
                value, is_complete = value
        content = to_content(value, nothing=nothing)
    except BaseException as error:
        # Serializers of the tool run here, and can raise any exception.
        if ends_run(error):
            raise
        text = f"{call.name} ran, but its result ({type(value).__name__}) cannot be shown: {describe_error(error)}"
        return ToolResult(call.id, call.name, text, "error", value, error)
    if limit is not None and (shorter := cut(content, limit, more=not is_complete)) is not None:
        return ToolResult(call.id, call.name, shorter[0], "too_large", value, None, shorter[1])
    return ToolResult(call.id, call.name, content, "success", value)


def failed(call: ToolCall, error: BaseException, policy: ToolPolicy) -> ToolResult:
    """Return the result of a call that raised `error`."""
    if isinstance(error, DeadlineError):
        text = f"{call.name} did not end within {policy.timeout:g} seconds. It may still have had an effect."
        return ToolResult(call.id, call.name, text, "timeout", error=TimeoutError(text))
    if isinstance(error, CancelledError):
        return ToolResult(call.id, call.name, f"{call.name} was cancelled.", "cancelled", error=error)
    if not isinstance(error, ToolFailure):
        return ToolResult(call.id, call.name, f"{call.name} failed: {describe_error(error)}", "error", error=error)
    try:
        content = to_content(error.payload)
    except BaseException as problem:
        if ends_run(problem):
            raise
        note = f"its data ({type(error.data).__name__}) cannot be shown: {describe_error(problem)}"
        content = to_content({"error": error.message, "note": note})
    return _shortened(ToolResult(call.id, call.name, content, "error", error=error), policy.max_result_chars)


def unread(call: ToolCall, error: ToolArgumentError | DeadlineError, policy: ToolPolicy) -> ToolResult:
    """Return the result of a call with invalid arguments."""
    if isinstance(error, DeadlineError):
        return failed(call, error, policy)
    return ToolResult(call.id, call.name, str(error), "error", error=error)


def _shortened(result: ToolResult, limit: int | None) -> ToolResult:
    """Return a result with its content cut to `limit` characters; "success" becomes "too_large"."""
    if limit is None or (shorter := cut(result.content, limit)) is None:
        return result
    status = result.status
    if status == "success":
        status = "too_large"
    return replace(result, content=shorter[0], whole=result.whole or shorter[1], status=status)


def unknown_tool(call: ToolCall, names: Iterable[str]) -> ToolResult:
    """Return the result of a call of an unknown tool."""
    name = call.name.encode("utf-8", "replace").decode()[:100]
    hint = nearest(name, names) or "; no tools are available"
    return ToolResult(call.id, call.name, f"Unknown tool {name!r}{hint}.", "error")
