"""Readers that convert JSON text to validated arguments, in the event loop or in a thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import CoreSchema, from_json

from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.schemas.property_names import original_names, with_original_names
from agentkit_prompts.schemas.recursive_unions import core_nodes, has_recursive_union, recursion_problem
from agentkit_prompts.schemas.schema_problems import InvalidValueError, SchemaProblem
from agentkit_tools.schemas.validation_cost import has_own_code, hashes_numbers, most_required

if TYPE_CHECKING:
    from agentkit_prompts.schemas.json_validator import JsonValidator

Arguments: TypeAlias = dict[str, Any]
"""Validated arguments by parameter name, without the arguments that the model omitted."""


class ModelArguments(dict[str, Any]):
    """Arguments of a pydantic model, and the model."""

    model: Any


Validate: TypeAlias = Callable[[str], Arguments]

_QUICK_CHARS = 40_000
"""Maximum characters that are read in the event loop: some milliseconds, more for many invalid values."""
_MAX_VALUES = 40_000
"""Maximum values in the arguments of a call: pydantic blocks the interpreter while it creates errors."""
_MAX_HASHED = 4_000
"""Maximum values if numbers become members of a set or keys of a dict: a model can choose numbers with equal hashes."""
_MAX_MISSING = 40_000
"""Maximum missing fields in all objects of the arguments together: pydantic creates an error for each."""
_REQUIRED_PER_CHARS = 4
_STRING = re.compile(r'(?<!\\)"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_MAY_OVERFLOW = re.compile(r"\d[eE]|\d{300}")
"""Numbers of JSON that can be larger than any float."""


class TooManyValuesError(ValueError):
    """The arguments are too large, or nested too deeply, to be validated in time."""


@dataclass(slots=True)
class ArgumentReader:
    """Two functions that validate the arguments of one tool. Both raise an exception for invalid arguments."""

    at_once: Validate
    """Fast validation in the event loop."""
    max_chars: int
    """Maximum characters for `at_once`; -1 if validation runs code of the developer."""
    thoroughly: Validate
    """Validation in a thread; it can take a second."""
    own_names: Callable[[str], str] | None = None
    """Replaces property names for providers by the original names; None if all names are equal."""


def named_reader(reader: ArgumentReader, parameters: Mapping[str, Any]) -> ArgumentReader:
    """Return a reader that also accepts the names that replace refused property names in requests."""
    names = original_names(parameters)
    if not names:
        return reader

    def own(text: str) -> str:
        return with_original_names(text, names)

    return ArgumentReader(
        lambda text: reader.at_once(own(text)), reader.max_chars, lambda text: reader.thoroughly(own(text)), own
    )


def reader_of(validate: Validate, schema: CoreSchema) -> ArgumentReader:
    """Return a reader with a validator of pydantic. `schema` is the core schema of `validate`."""
    parts = list(core_nodes(schema))
    limit = _MAX_HASHED if hashes_numbers(parts) else _MAX_VALUES
    required = most_required(parts)
    recurses = has_recursive_union(schema)

    def checked(text: str) -> Arguments:
        _check_count(text, limit)
        _check_missing(text, required)
        if recurses and (problem := recursion_problem(from_json(text))):
            raise TooManyValuesError(problem)
        return validate(text)

    # Code of the developer can block, so it never runs in the event loop.
    if has_own_code(parts):
        return ArgumentReader(validate, -1, checked)
    max_chars = min(limit, _QUICK_CHARS) // max(1, required // _REQUIRED_PER_CHARS)
    return ArgumentReader(checked if recurses else validate, max_chars, checked)


class JsonArguments:
    """Reader of arguments with a validator of JSON Schema.

    The first call creates the validator: a run calls few of the thousands of tools of a server, and a validator needs
    more time and memory than the rest of a tool. Its creation can take a second because of patterns.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = parameters
        self._validator: JsonValidator | None = None

    def reader(self) -> ArgumentReader:
        """Return the reader of a tool."""
        # The first call finds no validator, so it is read in a thread.
        return ArgumentReader(self.at_once, _QUICK_CHARS, self.thoroughly)

    def prepare(self) -> None:
        """Create the validator.

        Raises:
            InvalidSchemaError: The parameters are not a valid schema.
        """
        from agentkit_prompts.schemas.json_validator import JsonValidator

        if self._validator is None:
            self._validator = JsonValidator(closed(self._parameters), is_lenient=True)

    def at_once(self, text: str) -> Arguments:
        """Read arguments if the validator is ready."""
        if self._validator is None:
            raise TooManyValuesError("the validator is not ready")
        value: Arguments = _json(text)
        if _MAY_OVERFLOW.search(text):
            for node in iter_nodes(value):
                if isinstance(node, float) and node in (float("inf"), float("-inf")):
                    raise TooManyValuesError("a number in the arguments is larger than any float")
        self._validator.check(value)
        return value

    def thoroughly(self, text: str) -> Arguments:
        """Read arguments; create the validator first if necessary."""
        _check_count(text, _MAX_VALUES)
        self.prepare()
        return self.at_once(text)


_COMBINING = ("anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "if", "dependentSchemas", "patternProperties")


def closed(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return parameters that refuse unknown properties, unless a keyword of the schema covers unknown properties.

    JSON Schema accepts unknown properties by default, but a model must receive an error for an invented argument.
    """
    rules = ("additionalProperties", "unevaluatedProperties", *_COMBINING)
    if "properties" not in parameters or any(keyword in parameters for keyword in rules):
        return parameters
    properties = dict(parameters["properties"])
    for name in parameters.get("required", ()):
        properties.setdefault(name, {})
    return {**parameters, "properties": properties, "additionalProperties": False}


def _json(text: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except UnicodeError:
        problem = "expected one JSON object, this text has characters that are not Unicode"
    except ValueError as error:
        problem = f"expected one JSON object, this is not valid JSON: {error}"
    raise InvalidValueError([SchemaProblem((), "json", problem)])


def _check_missing(text: str, required: int) -> None:
    # There cannot be more objects than characters.
    if len(text) * required <= _MAX_MISSING:
        return
    missing = 0
    for node in iter_nodes(from_json(text)):
        if isinstance(node, dict):
            missing += max(0, required - len(node))
        if missing > _MAX_MISSING:
            raise TooManyValuesError(
                f"more than {_MAX_MISSING:,} fields can be missing in the arguments: send fewer objects"
            )


def _check_count(text: str, limit: int) -> None:
    """Refuse JSON text with more than `limit` values before it is parsed, because parsing blocks the process."""
    if _separators(text, 0, len(text)) <= limit:
        return
    count, end = 0, 0
    for string in _STRING.finditer(text):
        count += _separators(text, end, string.start())
        end = string.end()
        if count > limit:
            break
    if count + _separators(text, end, len(text)) > limit:
        raise TooManyValuesError(f"the arguments contain more than {limit:,} values: send fewer values")


def _separators(text: str, start: int, end: int) -> int:
    """Return the number of values that start in a piece of JSON text: after a comma, a bracket or a brace."""
    openings = text.count("[", start, end) + text.count("{", start, end)
    return text.count(",", start, end) + openings - text.count("[]", start, end) - text.count("{}", start, end)
