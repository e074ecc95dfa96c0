"""Readers of arguments: from JSON text to validated arguments, at once or in a thread."""

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

__all__ = [
    "ArgumentReader",
    "Arguments",
    "JsonArguments",
    "ModelArguments",
    "TooManyValuesError",
    "named_reader",
    "reader_of",
]

Arguments: TypeAlias = dict[str, Any]
"""Validated arguments by parameter name; those the model left out are absent."""


class ModelArguments(dict[str, Any]):
    """The arguments a model was made from, and the model."""

    made: Any


Validate: TypeAlias = Callable[[str], Arguments]

_QUICK_CHARS = 40_000
"""Characters that are read in the event loop: some milliseconds, more if all of them are wrong."""
_MAX_VALUES = 40_000
"""Values in the arguments of a call: pydantic holds the interpreter while it notes what is wrong with them."""
_MAX_HASHED = 4_000
"""Values if numbers become members of a set or keys of a dict: a model can make all their hashes equal."""
_MAX_MISSING = 40_000
"""Fields that can be missing in all objects of the arguments together: pydantic keeps a note of each."""
_REQUIRED_PER_CHARS = 4
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_MAY_OVERFLOW = re.compile(r"\d[eE]|\d{300}")
"""Numbers of JSON that can be larger than any float."""


class TooManyValuesError(ValueError):
    """Arguments that are too large, or nested too deeply, to be validated in time."""


@dataclass(slots=True)
class ArgumentReader:
    """Two ways to read the arguments of one tool; both raise if the arguments are not valid."""

    at_once: Validate
    """Ends soon, or raises."""
    max_chars: int
    """Longest text that `at_once` may read; -1 if the types of the tool run code of its author."""
    thoroughly: Validate
    """Ends, but may take a second: for a thread."""
    own_names: Callable[[str], str] | None = None
    """Replaces names that providers were sent by the names of the properties; None if all are the same."""


def named_reader(reader: ArgumentReader, parameters: Mapping[str, Any]) -> ArgumentReader:
    """Return a reader that also takes the names that providers are sent instead of names they refuse."""
    names = original_names(parameters)
    if not names:
        return reader

    def own(text: str) -> str:
        return with_original_names(text, names)

    return ArgumentReader(
        lambda text: reader.at_once(own(text)), reader.max_chars, lambda text: reader.thoroughly(own(text)), own
    )


def reader_of(validate: Validate, schema: CoreSchema) -> ArgumentReader:
    """Return a reader by pydantic: `validate` is its validator of JSON text, `schema` the schema of that."""
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

    # Code of the author can block, so it never runs in the event loop.
    if has_own_code(parts):
        return ArgumentReader(validate, -1, checked)
    max_chars = min(limit, _QUICK_CHARS) // max(1, required // _REQUIRED_PER_CHARS)
    return ArgumentReader(checked if recurses else validate, max_chars, checked)


class JsonArguments:
    """Reads and validates arguments by a JSON Schema.

    The validator is made when the first call is read: of ten thousand tools that a server offers a run calls a few, and
    a validator takes more time and memory than the rest of a tool. Making it can take a second because of its patterns.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = parameters
        self._validator: JsonValidator | None = None

    def reader(self) -> ArgumentReader:
        """Return the reader of a tool."""
        # Before the first call the validator is not ready, so the first call is read in a thread.
        return ArgumentReader(self.at_once, _QUICK_CHARS, self.thoroughly)

    def prepare(self) -> None:
        """Make the validator.

        Raises:
            InvalidSchemaError: The parameters cannot be used.
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
            _check_finite(value)
        self._validator.check(value)
        return value

    def thoroughly(self, text: str) -> Arguments:
        """Read arguments, and make the validator first if necessary."""
        _check_count(text, _MAX_VALUES)
        self.prepare()
        return self.at_once(text)


_COMBINING = ("anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "if", "dependentSchemas", "patternProperties")


def closed(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return parameters that allow no other properties than they list, unless they contain a rule about others.

    A model that invents an argument is told so, although JSON Schema accepts it.
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


def _check_finite(value: Any) -> None:
    for node in iter_nodes(value):
        if isinstance(node, float) and node in (float("inf"), float("-inf")):
            raise TooManyValuesError("there is a number in them that is larger than any float")


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
                f"there may be more than {_MAX_MISSING:,} fields missing in them: send fewer at once"
            )


def _check_count(text: str, limit: int) -> None:
    """Refuse JSON text with more than `limit` values before it is read: that holds up all of the process, too."""
    if _separators(text, 0, len(text)) <= limit:
        return
    count, end = 0, 0
    for string in _STRING.finditer(text):
        count += _separators(text, end, string.start())
        end = string.end()
        if count > limit:
            break
    if count + _separators(text, end, len(text)) > limit:
        raise TooManyValuesError(f"there are more than {limit:,} values in them: send fewer at once")


def _separators(text: str, start: int, end: int) -> int:
    """Return how many values begin in a piece of JSON text: after a comma, or as the first of a list or an object."""
    openings = text.count("[", start, end) + text.count("{", start, end)
    return text.count(",", start, end) + openings - text.count("[]", start, end) - text.count("{}", start, end)
