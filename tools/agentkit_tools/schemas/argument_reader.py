"""Reads arguments from JSON text: at once where that is surely soon done, otherwise in steps that are counted."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

from pydantic_core import CoreSchema, SchemaValidator

from agentkit_prompts.schemas.steps import StepsExceeded, bounded, within
from agentkit_tools.schemas.validation_cost import ValidationCost, has_own_code, validation_cost

__all__ = ["ArgumentReader", "Arguments", "metered_reader", "reader_of"]

Arguments: TypeAlias = dict[str, Any]
"""Validated arguments by parameter name; those the model left out are absent."""
Validate: TypeAlias = Callable[[str], Arguments]

_QUICK_CHARS = 500_000
"""Characters that are looked at where the call is made: about ten milliseconds."""
_MAX_LOOKS = 8
"""Looks at one value that need not be counted, because the length of the arguments is limited."""
_QUICK_STEPS = 10_000
_MAX_STEPS = 1_000_000


class ArgumentReader(NamedTuple):
    """Two ways to read the arguments of one tool; both raise where they are not valid."""

    at_once: Validate
    """Ends soon, and gives up where it would not."""
    max_chars: int
    """Texts that are longer are not for `at_once`; -1 where none is, because code of the tool's own runs in it."""
    thoroughly: Validate
    """Ends, but may take a second: for a thread."""


def reader_of(validate: Validate, schema: CoreSchema) -> ArgumentReader:
    """Return what reads with pydantic: `validate` is its validator of JSON text, `schema` what that was made from."""
    cost = validation_cost(schema)
    max_chars = -1 if has_own_code(schema) else _QUICK_CHARS // cost.looks
    if cost.is_linear and cost.looks <= _MAX_LOOKS:
        return ArgumentReader(validate, max_chars, validate)
    at_once = validate if cost.is_linear else partial(_where_cheap, validate, cost)
    return ArgumentReader(at_once, max_chars, partial(_in_steps, lru_cache(maxsize=1)(partial(_bounded, schema))))


def metered_reader(validate: Validate) -> ArgumentReader:
    """Return what reads with a validator that takes steps by itself."""
    return ArgumentReader(partial(within, _QUICK_STEPS, validate), _QUICK_CHARS, partial(within, _MAX_STEPS, validate))


def _where_cheap(validate: Validate, cost: ValidationCost, text: str) -> Arguments:
    if not cost.is_below(_QUICK_CHARS, text):
        raise StepsExceeded("not at once")
    return validate(text)


def _in_steps(validator: Callable[[], Validate], text: str) -> Arguments:
    return within(_MAX_STEPS, validator(), text)


def _bounded(schema: CoreSchema) -> Validate:
    return SchemaValidator(bounded(schema), _use_prebuilt=False).validate_json
