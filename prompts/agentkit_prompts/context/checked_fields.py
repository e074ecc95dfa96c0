"""Checks of the fields of context items: the annotation of a field selects its check."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from functools import lru_cache
from types import NoneType
from typing import Any, Literal, TypeAlias, get_args

from agentkit_prompts.context.frozen import FrozenDict, freeze, plain_text
from agentkit_prompts.context.parts import Image
from agentkit_prompts.context.trusted import Trusted
from agentkit_prompts.errors import ContextError, Problem, Problems, brief
from agentkit_prompts.limits import MAX_COUNT

Trust: TypeAlias = Literal["trusted", "untrusted"]
Speaker: TypeAlias = Literal["user", "assistant"]
"""Roles of recalled messages."""
Position: TypeAlias = int | None
"""Index of a chunk in its source."""
Label: TypeAlias = str
"""Name of a chunk in prompts and answers, such as `manual.md#3`; empty for the default name."""

_LABEL = re.compile(r"(?!\u200b)[^\[\]\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_ONE_FIELD = "Trusted has no effect on a single field: pass trust='trusted' for the whole item"

Check: TypeAlias = Callable[[Any], Any]
"""Function that returns the value to store in a field; raises ContextError for an invalid value."""


def check_fields(item: Any) -> None:
    """Check every field of a frozen dataclass, and replace each value by the value that its check returns.

    Raises:
        ContextError: Lists all invalid fields.
    """
    problems: Problems = []
    for name, check in _checks_of(item.__class__):
        value = getattr(item, name)
        try:
            checked = check(value)
        except ContextError as error:
            problems += [Problem(name, problem.text) for problem in error.problems]
        else:
            if checked is not value:
                if type(value) is Trusted and getattr(item, "trust", "trusted") == "untrusted":
                    problems.append(Problem(name, _ONE_FIELD))
                object.__setattr__(item, name, checked)
    if problems:
        raise ContextError(type(item).__name__, problems)


@lru_cache(maxsize=64)
def _checks_of(item_class: Any) -> tuple[tuple[str, Check], ...]:
    """Return the names of the fields of a dataclass, each with its check."""
    return tuple([(field.name, _CHECKS[str(field.type)]) for field in fields(item_class)])


def _invalid(text: str) -> ContextError:
    """Return the error of a check, which does not know the name of the field; `check_fields` adds the name."""
    return ContextError("", [("", text)])


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if isinstance(value, str):
        return plain_text(value)
    raise _invalid(f"expected str, got {type(value).__name__}")


def _instance_of(name: str, *kinds: type) -> Check:
    def check(value: Any) -> Any:
        if isinstance(value, kinds):
            return value
        raise _invalid(f"expected {name}, got {type(value).__name__}")

    return check


def _one_of(words: tuple[str, ...]) -> Check:
    def check(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return _text(value)
        raise _invalid(f"expected {' or '.join(map(repr, words))}, got {brief(value)}")

    return check


def _data(value: Any, *, json_only: bool = False) -> FrozenDict:
    if type(value) is FrozenDict:
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return FrozenDict(freeze(value, json_only=json_only))
    raise _invalid(f"expected a mapping of names to values, got {type(value).__name__}")


def _json_data(value: Any) -> FrozenDict:
    return _data(value, json_only=True)


def _json_data_or_none(value: Any) -> FrozenDict | None:
    return None if value is None else _data(value, json_only=True)


def _position(value: Any) -> int | None:
    if not isinstance(value, int | None):
        raise _invalid(f"expected int or None, got {type(value).__name__}")
    if value is not None and not -MAX_COUNT <= value <= MAX_COUNT:
        raise _invalid(f"expected at most {MAX_COUNT:,}")
    return value


def _label(value: Any) -> str:
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or "#" not in value or not _LABEL.fullmatch(value):
        raise _invalid(f"expected one line such as 'manual.md#3', without brackets, got {brief(value)}")
    return _text(value)


_CHECKS: Mapping[str, Check] = {
    "str": _text,
    "bool": _instance_of("bool", bool),
    "int | None": _instance_of("int or None", int, NoneType),
    "float | None": _instance_of("a number or None", int, float, NoneType),
    "datetime | None": _instance_of("datetime or None", datetime, NoneType),
    "Image | None": _instance_of("an Image or None", Image, NoneType),
    "tuple[Example, ...]": _instance_of("tuple", tuple),
    "Trust": _one_of(get_args(Trust)),
    "Speaker": _one_of(get_args(Speaker)),
    "Data": _data,
    "JsonData": _json_data,
    "JsonData | None": _json_data_or_none,
    "Position": _position,
    "Label": _label,
}
"""Checks by the annotation of a field, as text."""
