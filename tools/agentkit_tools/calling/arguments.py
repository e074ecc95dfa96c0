"""From the JSON text of a call to validated arguments, repaired where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from agentkit_tools.calling.argument_problems import find_problems
from agentkit_tools.errors import ArgumentProblem, ToolArgumentError, describe_error
from agentkit_tools.schemas.signature import Arguments

__all__ = ["read_arguments"]


def read_arguments(
    tool: str,
    text: str,
    validate: Callable[[str], Arguments],
    parameters: Mapping[str, Any],
    *,
    is_strict: bool,
    repair: bool,
) -> tuple[Arguments, str]:
    """Return validated arguments and the text they come from, which may be a repaired one.

    Args:
        tool: Name of the tool, for the error.
        text: What the model wrote.
        validate: Raises whatever it likes: validators of the user's own run in it.
        parameters: The JSON Schema, before it was made strict.
        is_strict: Whether nulls stand for what the model left out.
        repair: Whether nearly valid JSON is repaired.

    Raises:
        ToolArgumentError: They cannot be used; the message names every problem.
    """
    try:
        return validate(text), text
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        for meant in _readings(text, parameters, is_strict, repair):
            try:
                return validate(meant), meant
            except KeyboardInterrupt:
                raise
            except BaseException:
                continue
        if isinstance(error, ValidationError):
            problems = find_problems(error, text, parameters)
        else:
            problems = [ArgumentProblem("", f"cannot be read ({describe_error(error)})")]
    raise ToolArgumentError(tool, problems)


def _readings(text: str, parameters: Mapping[str, Any], is_strict: bool, repair: bool) -> Iterator[str]:
    """What the model may have meant by arguments that are not valid."""
    if not is_strict and not repair:
        return
    from agentkit_tools.calling.argument_repair import repaired, without_nulls

    if is_strict and (bare := without_nulls(text, parameters)) is not None:
        yield bare
    if repair and (whole := repaired(text, parameters)) is not None:
        yield whole
        if (bare := without_nulls(whole, parameters)) is not None:
            yield bare
