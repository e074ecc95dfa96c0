"""Parser of JSON requests, with a maximum number of values, without infinite numbers and duplicate names."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from pydantic_core import from_json

MAX_VALUES = 100_000
"""Maximum number of values in a request: more would block the event loop noticeably."""
_MAY_BE_INFINITE = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{309}")
"""Numbers that can be outside of the range of floats; texts with such numbers are parsed a second time."""
_NAME_END = re.compile(rb'"\s*+:')
"""Text after each name of an object. A text with more such places than names is parsed a second time."""


def request_json(text: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is not JSON, is nested too deep, or has a lone surrogate, more than `MAX_VALUES` values, a
            duplicate name in an object, or a number outside of the range of floats, such as 1e400.
    """
    data = from_json(text, allow_inf_nan=False)
    names = _count_names(data)
    # A person must not see one decision in a log while the last decision of the same name is valid.
    if _MAY_BE_INFINITE.search(text) or len(_NAME_END.findall(text)) > names:
        json.loads(text, parse_float=_finite, parse_constant=_refuse, object_pairs_hook=_checked_object)
    return data


def _count_names(data: Any) -> int:
    """Return the number of names in all objects; refuse more than `MAX_VALUES` values."""
    count, names, containers = 1, 0, [data]
    while containers:
        values = containers.pop()
        if isinstance(values, dict):
            names += len(values)
            values = values.values()
        elif not isinstance(values, list):
            continue
        count += len(values)
        if count > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES:,} values: send at most {MAX_VALUES:,}")
        containers += [value for value in values if isinstance(value, dict | list)]
    return names


def _checked_object(pairs: list[tuple[str, Any]]) -> None:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise ValueError(f"duplicate name {name!r:.80} in an object: send each name once")
        names.add(name)


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        _refuse(number)
    return value


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"the number {number:.40} is too large")
