"""Failed tool calls of a run, and the form of their errors in a journal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentkit.errors import FailedCall
from agentkit.run.journal.journal_steps import JournalStep
from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import ToolArgumentError, ToolError, traceback_text

_TRACEBACK = re.compile(r',"error_traceback":"(?:[^"\\]|\\.)*+"')


class RecordedError(ToolError):
    """Exception of a call in a journal that was read from text.

    Attributes:
        exception_class: Class of the exception.
        traceback: See `FailedCall`.
    """

    def __init__(self, exception_class: str, traceback: str = "") -> None:
        super().__init__(exception_class)
        self.exception_class = exception_class
        self.traceback = traceback


def failed_call(call: ToolCall, result: ToolResult) -> FailedCall:
    """Return the failed call of a result."""
    data = error_data(result)
    return FailedCall(
        call, result.name, result.message.text, data.get("error_class", ""), data.get("error_traceback", "")
    )


def ends_round(result: ToolResult) -> bool:
    """True if a call failed in its tool. Refused arguments are no such failure: the model can correct them."""
    return result.has_failed and error_data(result).get("error_class") != ToolArgumentError.__name__


def failed_calls(steps: Sequence[JournalStep]) -> list[FailedCall]:
    """Return the failed calls among the steps of a journal, in order; first the calls inside of a call."""
    failed: list[FailedCall] = []
    for step in steps:
        if step.call is None:
            continue
        if step.inner is not None:
            inner_calls = failed_calls(step.inner.steps())
            failed += [
                replace(inner, call=replace(inner.call, id=f"{step.call.id}/{inner.call.id}")) for inner in inner_calls
            ]
        if step.has_result and step.answer[0].has_failed:
            failed.append(failed_call(step.call, step.answer[0]))
    return failed


def error_data(result: ToolResult) -> dict[str, Any]:
    """Return the exception of a failed call as JSON data; empty without an exception."""
    error = result.error
    if error is None or not result.has_failed:
        return {}
    if isinstance(error, RecordedError):
        return {"error_class": error.exception_class, "error_traceback": error.traceback}
    trace = ""
    # The frames of refused arguments are code of this library.
    if not isinstance(error, ToolArgumentError):
        trace = traceback_text(error)
    return {"error_class": type(error).__name__, "error_traceback": trace}


def read_error(data: Any) -> RecordedError | None:
    """Return the exception from the JSON data of a result.

    Raises:
        TypeError: A field is no text.
    """
    if "error_class" not in data:
        return None
    fields = data["error_class"], data.get("error_traceback", "")
    if not all(isinstance(text, str) for text in fields):
        raise TypeError("error_class and error_traceback: expected text")
    return RecordedError(*fields)


def text_without_tracebacks(text: str) -> str:
    """Return the text of a journal without the tracebacks of failed calls, which contain names of files."""
    return _TRACEBACK.sub("", text)
