"""Output validators: what is called with an answer before a run ends with it."""

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

__all__ = ["Checked", "checked_output"]


@dataclass(slots=True)
class Checked:
    """What the validators of a run made of an answer."""

    output: Any
    problem: str | None = None
    """Why the model has to answer again."""


async def checked_output(
    output: Any, validators: Sequence[tuple[OutputValidator, bool]], context: ToolContext[Any]
) -> Checked:
    """Call the validators with an answer, one after the other; plain functions in a thread.

    Raises:
        Exception: Whatever a validator raises that is not `AskAgain`.
    """
    for validator, takes_context in validators:
        call = partial(validator, output, context) if takes_context else partial(validator, output)
        try:
            if inspect.iscoroutinefunction(validator):
                made = await call()
            else:
                made, error = await run_in_thread(call)
                if error is not None:
                    raise error
                if inspect.isawaitable(made):
                    made = await made
        except AskAgain as problem:
            return Checked(None, str(problem) or "it was not accepted")
        if made is not None:
            output = made
    return Checked(output)
