"""Output validators: functions that validate the answer before a run finishes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from agentkit.errors import AskAgain
from agentkit_tools.calling.tool_threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkit.output.output_spec import OutputValidator
    from agentkit_tools.tool_context import ToolContext


@dataclass(slots=True)
class CheckedOutput:
    """Result of the validators of a run."""

    output: Any
    """The answer, possibly replaced by validators; None if there is a problem."""
    problem: str | None = None
    """Reason why the model must answer again, or None."""


async def checked_output(
    output: Any, validators: Sequence[tuple[OutputValidator, bool]], context: ToolContext[Any]
) -> CheckedOutput:
    """Call the validators with an answer, one after the other; synchronous functions run in a thread.

    Raises:
        Exception: Any exception of a validator other than `AskAgain`.
    """
    for validator, takes_context in validators:
        call = partial(validator, output)
        if takes_context:
            call = partial(validator, output, context)
        try:
            if inspect.iscoroutinefunction(validator):
                result = await call()
            else:
                result, error = await run_in_thread(call)
                if error is not None:
                    raise error
                if inspect.isawaitable(result):
                    result = await result
        except AskAgain as problem:
            return CheckedOutput(None, str(problem) or "it was not accepted")
        if result is not None:
            output = result
    return CheckedOutput(output)
