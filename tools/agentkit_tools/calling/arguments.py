"""Validation of the arguments of a call: from JSON text to Python values, or to an error message for a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json, to_jsonable_python

from agentkit_prompts.errors import ends_of, start_of
from agentkit_prompts.invalid_values import (
    JSON_WORDS,
    InvalidValue,
    invalid_values,
    json_value,
    place_of,
)
from agentkit_prompts.limits import MAX_MESSAGE_CHARS, MAX_SHOWN_CHARS
from agentkit_prompts.schemas.schema_problems import InvalidValueError, SchemaProblem
from agentkit_prompts.schemas.subschemas import schema_at, type_of
from agentkit_tools.calling.shown_arguments import RepeatedNameError, check_unique_names, visible_json
from agentkit_tools.calling.tool_policy import ToolPolicy
from agentkit_tools.calling.tool_threads import run_in_thread
from agentkit_tools.errors import ArgumentProblem, ToolArgumentError, describe_error, ends_run

if TYPE_CHECKING:
    from agentkit_tools.schemas.argument_reader import ArgumentReader, Arguments

_MAX_CHARS = 5_000_000


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """Reader of the arguments of one tool."""

    reader: ArgumentReader
    schema: Mapping[str, Any]
    """JSON Schema of the parameters, before its conversion to a strict schema."""
    is_strict: bool = False
    """True if the model received a strict schema, in which the value null omits an argument."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of omitted arguments, by property name, if the function has them."""

    def at_once(self, text: str) -> Arguments | None:
        """Return arguments that are valid without repair; None if they are not, or if validation could take long."""
        if len(text) > self.reader.max_chars:
            return None
        try:
            return self.reader.at_once(text)
        except BaseException as error:
            if ends_run(error):
                raise
            return None

    def read(self, tool: str, text: str, policy: ToolPolicy) -> Arguments:
        """Return validated arguments, from repaired text if necessary.

        Validators can be code of the developer, which can raise any exception. Arguments with the same name twice are
        invalid for a tool that can need approval: a person could approve another value than the function receives.

        Raises:
            ToolArgumentError: The arguments are invalid; the message lists all problems.
        """
        if len(text) > _MAX_CHARS:
            problem = f"are too long: {len(text):,} characters, at most {_MAX_CHARS:,} are read"
            raise ToolArgumentError(tool, [ArgumentProblem("", problem)])
        if policy.approval != "never":
            _check_unique_names(tool, text)
        if self.reader.own_names is not None:
            text = self.reader.own_names(text)
        first: BaseException | None = None
        reading = text
        try:
            for candidate in self._readings(text, repair=policy.repair):
                try:
                    return self.reader.thoroughly(candidate.text)
                except BaseException as error:
                    if ends_run(error):
                        raise
                    if first is None or candidate.is_equal:
                        first, reading = error, candidate.text
            assert first is not None
            raise _argument_error(tool, first, reading, self.schema)
        finally:
            # Its traceback refers to this frame: a reference cycle, which would keep the arguments until garbage is
            # collected.
            del first

    def _readings(self, text: str, *, repair: bool) -> Iterator[_Reading]:
        """Yield the text and other texts for invalid arguments, the smallest change first."""
        yield _Reading(text, is_equal=True)
        from agentkit_tools.calling.argument_repair import repaired, without_null_defaults, without_nulls

        if self.is_strict:
            if (bare := without_nulls(text, self.schema)) is not None:
                yield _Reading(bare)
        elif (bare := without_null_defaults(text, self.schema)) is not None:
            text = bare
            yield _Reading(text, is_equal=True)
        if repair and (whole := repaired(text, self.schema)) is not None:
            yield _Reading(whole)
            if (bare := without_nulls(whole, self.schema)) is not None:
                yield _Reading(bare)

    async def read_in_time(self, tool: str, text: str, policy: ToolPolicy) -> Arguments:
        """Read arguments in a thread: validation, and code of the developer, can take long.

        Raises:
            ToolArgumentError: The arguments are invalid.
            DeadlineError: Reading exceeded the time limit of a call.
        """
        arguments, error = await run_in_thread(partial(self.read, tool, text, policy), policy.timeout)
        # A validator that raises these in a thread must not end the run.
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise _unreadable(tool, error)
        if error is None:
            return arguments
        try:
            raise error
        finally:
            # See `read`.
            del error

    def received_text(self, tool: str, text: str, policy: ToolPolicy) -> str:
        """Return the arguments that the function receives as JSON text: validated, converted and with defaults.

        A value without a JSON form, or whose JSON form is read as another value, is the value of the model. Invalid
        arguments are returned unchanged.
        """
        try:
            arguments = self.read(tool, text, policy)
        except ToolArgumentError:
            return text
        written = _json_object(text)
        if self.reader.own_names is not None:
            written = _json_object(self.reader.own_names(text))
        defaults = {name: value for name, value in self.defaults.items() if name not in {*arguments, *written}}
        try:
            received = to_jsonable_python(dict(arguments), by_alias=True)
            again = self.read(tool, json.dumps(received), policy)
            for name in received.keys() & written.keys():
                if again.get(name) != arguments[name]:
                    received[name] = written[name]
            return visible_json({**received, **defaults})
        except BaseException as error:
            if ends_run(error):
                raise
        # The function has other names for its parameters, or a value without a JSON form.
        if not written:
            return text
        return visible_json({**written, **defaults})


def text_of_arguments(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the JSON text of the arguments of a tool.

    Raises:
        ToolArgumentError: The arguments have no JSON form.
    """
    try:
        return json.dumps(dict(arguments))
    except (TypeError, ValueError) as error:
        reason = str(error)
    except RecursionError:
        reason = "nested too deeply"
    raise ToolArgumentError(tool, [ArgumentProblem("", f"cannot be written as JSON: {reason}")])


def _json_object(text: str) -> dict[str, Any]:
    """Return the object of a JSON text; an empty object if the text is not a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(value, dict):
        return {}
    return value


def _check_unique_names(tool: str, text: str) -> None:
    try:
        check_unique_names(text)
    except RepeatedNameError as error:
        name = visible_json(_short_text(error.name))
        problem = ArgumentProblem("", f"the name {name} occurs twice in an object: write each name once")
        raise ToolArgumentError(tool, [problem]) from None


class _Reading(NamedTuple):
    """A text for the arguments of a call."""

    text: str
    is_equal: bool = False
    """True if the text means the same as the text of the model, so that its problems are problems of the call."""


def _argument_error(tool: str, error: BaseException, text: str, schema: Mapping[str, Any]) -> ToolArgumentError:
    """Return the error that lists the problems of arguments for a model."""
    if isinstance(error, InvalidValueError):
        return ToolArgumentError(tool, [_json_problem(problem, text) for problem in error.problems])
    if not isinstance(error, ValidationError):
        return _unreadable(tool, error)
    try:
        return ToolArgumentError(tool, _problems(error, text, schema))
    except UnicodeError as other:
        # A foreign schema can contain text that pydantic cannot write out.
        return _unreadable(tool, other)


def _unreadable(tool: str, error: BaseException) -> ToolArgumentError:
    """Return the error for a validator that raised an unexpected exception."""
    return ToolArgumentError(tool, [ArgumentProblem("", f"cannot be read ({describe_error(error)})")])


def _problems(error: ValidationError, text: str, parameters: Mapping[str, Any]) -> list[ArgumentProblem]:
    """Return the distinct problems of a call, in the order of pydantic.

    `text` contains the arguments from the model, `parameters` the schema that the model received.
    """
    try:
        arguments = from_json(text.encode("utf-8", "replace"))
    except ValueError as reason:
        return [ArgumentProblem("", f"expected one JSON object, this is not valid JSON: {reason}", _short_text(text))]
    problems = invalid_values(error, arguments, words=JSON_WORDS)
    return list(dict.fromkeys([_problem(problem, parameters) for problem in problems]))


def _json_problem(problem: SchemaProblem, text: str) -> ArgumentProblem:
    """Return the problem of an argument that a JSON Schema rejects."""
    path, expected = place_of(problem.path), ends_of(problem.expected, MAX_MESSAGE_CHARS)
    if problem.keyword in ("required", "limit"):
        return ArgumentProblem(path, expected)
    if problem.keyword == "json":
        return ArgumentProblem(path, expected, _short_text(text))
    if problem.keyword == "type" and not path:
        expected = "expected one JSON object with the parameters"
    return ArgumentProblem(path, expected, json_value(problem.value))


def _problem(problem: InvalidValue, parameters: Mapping[str, Any]) -> ArgumentProblem:
    place, text = problem.place, problem.text
    if problem.is_missing:
        text = "is required but missing"
        schema = schema_at(parameters, problem.path)
        if schema is not None:
            text += f" (expected {type_of(parameters, schema)})"
        return ArgumentProblem(place, text)
    if problem.is_unknown:
        text = "is not allowed here"
        if len(problem.path) == 1:
            text = f"unknown parameter; valid parameters: {', '.join(parameters.get('properties', {})) or 'none'}"
    elif not place and problem.kind.endswith("_type"):
        text = "expected one JSON object with the parameters"
    return ArgumentProblem(place, text, json_value(problem.value))


def _short_text(text: str) -> str:
    return start_of(text.encode("utf-8", "replace").decode(), MAX_SHOWN_CHARS)
