"""Parser of JSON requests, with a maximum number of values and without infinite numbers."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from pydantic_core import from_json

__all__ = ["MAX_VALUES", "request_json"]

MAX_VALUES = 100_000
"""Maximum number of values in a request: more would block the event loop noticeably."""
_MAY_BE_INFINITE = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{309}")
"""Numbers that can be outside of the range of floats; only texts with such numbers are parsed a second time."""


def request_json(text: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is not JSON, is nested too deep, or has a lone surrogate, more than `MAX_VALUES` values or
            a number outside of the range of floats, such as 1e400.
    """
    data = from_json(text, allow_inf_nan=False)
    _check_values(data)
    if _MAY_BE_INFINITE.search(text):
        json.loads(text, parse_float=_finite, parse_constant=_refuse)
    return data


def _check_values(data: Any) -> None:
    """Refuse more than `MAX_VALUES` values."""
    count, containers = 1, [data]
    while containers:
        values = containers.pop()
        if isinstance(values, dict):
            values = values.values()
        elif not isinstance(values, list):
            continue
        count += len(values)
        if count > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES:,} values: send at most {MAX_VALUES:,}")
        containers += [value for value in values if isinstance(value, dict | list)]


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        _refuse(number)
    return value


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"the number {number:.40} is too large")
