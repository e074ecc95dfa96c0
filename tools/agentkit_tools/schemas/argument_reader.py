"""Reads arguments from JSON text: at once where that is surely soon done, otherwise in steps that are counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from pydantic_core import CoreSchema, SchemaValidator, from_json

from agentkit_prompts.schemas.property_names import original_names, with_original_names
from agentkit_prompts.schemas.validation_steps import StepsExceeded, bounded, nodes, within
from agentkit_tools.schemas.validation_cost import (
    ValidationCost,
    has_own_code,
    hashes_numbers,
    most_required,
    validation_cost,
)

__all__ = ["ArgumentReader", "Arguments", "LateReader", "ModelArguments", "named_reader", "reader_of"]

Arguments: TypeAlias = dict[str, Any]
"""Validated arguments by parameter name; those the model left out are absent."""


class ModelArguments(dict[str, Any]):
    """The arguments a model was made from, and the model."""

    made: Any


Validate: TypeAlias = Callable[[str], Arguments]

_QUICK_CHARS = 40_000
"""Characters that are looked at where the call is made: some milliseconds, more where each of them is wrong."""
_MAX_VALUES = 40_000
"""Values in the arguments of a call: while pydantic notes what is wrong with them, a microsecond each, nothing else of
the process runs, in a thread too."""
_MAX_HASHED = 4_000
"""Values where numbers become members of a set or keys of a dict: whoever chooses them can make all their hashes equal.
"""
_MAX_MISSING = 40_000
"""Fields that may be missing in all objects of the arguments together: pydantic keeps a note of each."""
_MAX_LOOKS = 8
"""Looks at one value that need not be counted, because the length of the arguments is limited."""
_QUICK_STEPS = 10_000
_MAX_STEPS = 60_000
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


@dataclass(slots=True)
class ArgumentReader:
    """Two ways to read the arguments of one tool; both raise where they are not valid."""

    at_once: Validate
    """Ends soon, and gives up where it would not."""
    max_chars: int
    """Texts that are longer are not for `at_once`; -1 where none is, because code of the tool's own runs in it."""
    thoroughly: Validate
    """Ends, but may take a second: for a thread."""
    own_names: Callable[[str], str] | None = None
    """Gives arguments the names that properties have, where a provider was sent others; None where all are their own.
    """


def named_reader(reader: ArgumentReader | LateReader, parameters: Mapping[str, Any]) -> ArgumentReader | LateReader:
    """Return a reader that takes the names that providers are sent in place of those they refuse, too."""
    names = original_names(parameters)
    if not names:
        return reader

    def own(text: str) -> str:
        return with_original_names(text, names)

    return ArgumentReader(
        lambda text: reader.at_once(own(text)), reader.max_chars, lambda text: reader.thoroughly(own(text)), own
    )


def reader_of(validate: Validate, schema: CoreSchema) -> ArgumentReader:
    """Return what reads with pydantic: `validate` is its validator of JSON text, `schema` what that was made from."""
    cost, parts = validation_cost(schema), [*nodes(schema)]
    max_chars, max_values = _QUICK_CHARS, _MAX_VALUES
    if hashes_numbers(parts):
        max_chars, max_values = _MAX_HASHED, _MAX_HASHED
    required = most_required(parts)
    max_chars = -1 if has_own_code(parts) else max_chars // cost.looks // max(1, required // 4)
    if cost.is_linear and cost.looks <= _MAX_LOOKS:
        return ArgumentReader(validate, max_chars, partial(_where_few, max_values // cost.looks, validate, required))
    at_once = validate if cost.is_linear else partial(_where_cheap, validate, cost)
    in_steps = SchemaValidator(bounded(schema), _use_prebuilt=False).validate_json
    in_time = partial(within, _MAX_STEPS, in_steps)
    return ArgumentReader(at_once, max_chars, partial(_where_few, max_values, in_time, required))


class LateReader:
    """Reads with a validator of a JSON Schema, which takes steps by itself, and is made when the tool is called first.

    Of ten thousand tools a server offers, a run calls a few, and a validator takes more time and memory than all the
    rest of a tool. Making it may take long too, so the first call is not for `at_once`.
    """

    __slots__ = ("_parameters", "_validate")

    max_chars = _QUICK_CHARS
    own_names = None

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = parameters
        self._validate: Validate | None = None

    def at_once(self, text: str) -> Arguments:
        """Read it, if the validator is made."""
        if self._validate is None:
            raise StepsExceeded("not made yet")
        return within(_QUICK_STEPS, self._validate, text)

    def thoroughly(self, text: str) -> Arguments:
        """Read it with more steps; make the validator if need be."""
        if self._validate is None:
            from agentkit_tools.schemas.argument_validator import validator_for

            self._validate = validator_for(self._parameters)
        return _where_few(_MAX_VALUES, partial(within, _MAX_STEPS, self._validate), 0, text)


def _where_cheap(validate: Validate, cost: ValidationCost, text: str) -> Arguments:
    if not cost.is_below(_QUICK_CHARS, text):
        raise StepsExceeded("not at once")
    return validate(text)


def _where_few(limit: int, validate: Validate, required: int, text: str) -> Arguments:
    _check_count(text, limit)
    if len(text) * required > _MAX_MISSING:  # there cannot be more objects than characters
        missing, waiting = 0, [from_json(text)]
        while waiting:
            value = waiting.pop()
            items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            missing += max(0, required - len(items)) if isinstance(value, dict) else 0
            if missing > _MAX_MISSING:
                raise StepsExceeded(
                    f"there may be more than {_MAX_MISSING:,} fields missing in them: send fewer at once"
                )
            waiting.extend([item for item in items if isinstance(item, dict | list)])
    return validate(text)


def _check_count(text: str, limit: int) -> None:
    """Refuse JSON text with more than `limit` values before it is read: that holds up all of the process, too."""
    if _separators(text, 0, len(text)) <= limit:
        return
    count, end = 0, 0
    for found in _STRING.finditer(text):
        count += _separators(text, end, found.start())
        end = found.end()
        if count > limit:
            break
    if count + _separators(text, end, len(text)) > limit:
        raise StepsExceeded(f"there are more than {limit:,} values in them: send fewer at once")


def _separators(text: str, start: int, end: int) -> int:
    """Return how many values begin in a piece of JSON text: behind a comma, or as the first of a list or an object."""
    openings = text.count("[", start, end) + text.count("{", start, end)
    return text.count(",", start, end) + openings - text.count("[]", start, end) - text.count("{}", start, end)
