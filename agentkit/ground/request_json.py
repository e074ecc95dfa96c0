"""Reads the JSON of a request within bounds: so many values, and numbers that are numbers."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from pydantic_core import from_json

__all__ = ["MAX_VALUES", "request_json"]

MAX_VALUES = 100_000
"""Values in a request: checking so many takes part of a second, in which nobody else is answered."""
_MAY_BE_INFINITE = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{309}")


def request_json(text: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: It is not JSON, nests too deep, has an unpaired surrogate, more than `MAX_VALUES` values, or a
            number that no float can hold, such as 1e400.
    """
    found = from_json(text, allow_inf_nan=False)
    _check_values(found)
    if _MAY_BE_INFINITE.search(text):
        json.loads(text, parse_float=_finite, parse_constant=_refuse)
    return found


def _check_values(data: Any) -> None:
    count, waiting = 1, [data]
    while waiting:
        one = waiting.pop()
        values = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        count += len(values)
        if count > MAX_VALUES:
            raise ValueError(f"it has more than {MAX_VALUES:,} values, the most that are read: send less")
        waiting += [value for value in values if isinstance(value, dict | list)]


def _finite(number: str) -> float:
    found = float(number)
    return found if math.isfinite(found) else _refuse(number)


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"the number {number:.40} is too large")
