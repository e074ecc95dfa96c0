"""From the JSON text of a call to validated arguments, or to what is wrong with them, written for a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from agentkit_tools.calling.deadline import outcome
from agentkit_tools.calling.tool_threads import run_in_thread
from agentkit_tools.errors import ArgumentProblem, ToolArgumentError, describe_error, ends_run
from agentkit_tools.schemas.argument_reader import Arguments
from agentkit_tools.schemas.subschemas import schema_at, type_of

__all__ = ["read_arguments", "read_in_time"]

_MAX_CHARS = 5_000_000
_MAX_FOUND = 10_000
"""Problems that are looked at one by one: some 20 microseconds each."""
_MAX_GOT = 80
_MAX_MESSAGE = 1_000
_MAX_PATH = 100
_OPENINGS = ("Input should be ", "Value should be ")


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

    `validate` may raise anything: validators of the user's own run in it. `parameters` are the JSON Schema before it
    was made strict; if it was, nulls stand for what the model left out.

    Raises:
        ToolArgumentError: They cannot be used; the message names every problem.
    """
    if len(text) > _MAX_CHARS:
        size = f"are too long: {len(text):,} characters, at most {_MAX_CHARS:,} are read"
        raise ToolArgumentError(tool, [ArgumentProblem("", size)])
    try:
        return validate(text), text
    except BaseException as error:
        if ends_run(error):
            raise
        for meant in _readings(text, parameters, is_strict, repair):
            try:
                return validate(meant), meant
            except BaseException as other:
                if ends_run(other):
                    raise
        if not isinstance(error, ValidationError):
            raise _unreadable(tool, error) from None
        try:
            problems = _problems(error, text, parameters)
        except UnicodeError as other:  # a schema that is not ours may hold what pydantic cannot write out
            raise _unreadable(tool, other) from None
    raise ToolArgumentError(tool, problems)


async def read_in_time(
    tool: str, read: Callable[[], tuple[Arguments, str]], timeout: float | None
) -> tuple[Arguments, str]:
    """Read arguments in a thread: what is wrong with them, and code of the user's own, may take long.

    Raises:
        ToolArgumentError: They cannot be used.
        DeadlineError: It took longer than a call may.
    """
    found, late = await outcome(run_in_thread(read), timeout)
    error = late if found is None else found[1]
    if isinstance(error, KeyboardInterrupt | SystemExit):  # it ended the thread
        raise _unreadable(tool, error)
    if error is not None:
        raise error
    return cast(tuple[tuple[Arguments, str], None], found)[0]


def _unreadable(tool: str, error: BaseException) -> ToolArgumentError:
    """Return what to raise where a validator failed with something that is no problem of the arguments."""
    return ToolArgumentError(tool, [ArgumentProblem("", f"cannot be read ({describe_error(error)})")])


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


def _problems(error: ValidationError, text: str, parameters: Mapping[str, Any]) -> list[ArgumentProblem]:
    """Return every problem of a call once, in the order pydantic found them.

    `text` is what the model wrote, `parameters` the schema it was given.
    """
    if (count := error.error_count()) > _MAX_FOUND:
        return [ArgumentProblem("", f"{count:,} problems, too many to name them", _short_text(text))]
    details = error.errors(include_url=False)
    if details and details[0]["type"] == "json_invalid":
        reason = str(details[0].get("ctx", {}).get("error", details[0]["msg"]))
        return [ArgumentProblem("", f"expected one JSON object, this is not valid JSON: {reason}", _short_text(text))]
    if details and details[0]["type"] == "string_unicode" and not details[0]["loc"]:
        return [ArgumentProblem("", "expected one JSON object, this text has characters that are not Unicode")]
    sent = from_json(text)
    return list(dict.fromkeys(_problem(detail, sent, parameters) for detail in details))


def _problem(detail: ErrorDetails, sent: Any, parameters: Mapping[str, Any]) -> ArgumentProblem:
    kind, loc = detail["type"], detail["loc"]
    steps = _steps(loc, sent, kind)
    path = _path(steps) if steps else str(loc[0]) if loc else ""
    if kind == "missing":
        found = schema_at(parameters, steps)
        expected = "" if found is None else f" (expected {type_of(parameters, found)})"
        return ArgumentProblem(path, f"is required but missing{expected}")
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        known = ", ".join(parameters.get("properties", {})) or "none"
        hint = f"is not a parameter; the parameters are: {known}" if len(loc) == 1 else "is not allowed here"
        return ArgumentProblem(path, hint, _short(detail["input"]))
    if not loc and kind.endswith("_type"):
        return ArgumentProblem("", "expected one JSON object with the parameters", _short(detail["input"]))
    message = detail["msg"]
    for opening in _OPENINGS:
        if message.startswith(opening):
            message = "expected " + message.removeprefix(opening)
    return ArgumentProblem(path, _ends_of(message, _MAX_MESSAGE), _short(detail["input"]))


def _steps(loc: tuple[int | str, ...], sent: Any, kind: str) -> list[int | str]:
    """Follow the location through what was sent; steps that are not there name union members, and are left out."""
    steps: list[int | str] = []
    for index, step in enumerate(loc):
        is_last = index == len(loc) - 1
        if isinstance(step, int) and isinstance(sent, list) and step < len(sent):
            sent = sent[step]
        elif isinstance(step, str) and isinstance(sent, dict) and (step in sent or (is_last and kind == "missing")):
            sent = sent.get(step)
        else:
            continue
        steps.append(step)
    return steps


def _path(steps: list[int | str]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return _ends_of(path, _MAX_PATH)


def _short(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        text = type(value).__name__
    return _short_text(text)


def _short_text(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _MAX_GOT else f"{text[:_MAX_GOT]}... ({len(text)} characters)"


def _ends_of(text: str, limit: int) -> str:
    """Return a text that names of the model's own may be part of, without its middle where it is long."""
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[-limit // 2 :]}"
