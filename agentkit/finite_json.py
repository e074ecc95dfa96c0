"""Reads JSON from outside whose numbers are numbers: `1e400` would be read as infinity, which JSON has no form of."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from pydantic_core import from_json

__all__ = ["finite_json"]

_MAY_BE_INFINITE = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{309}")


def finite_json(text: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: It is not JSON, nests too deep, has an unpaired surrogate, or a number that no float can hold.
    """
    found = from_json(text, allow_inf_nan=False)
    if _MAY_BE_INFINITE.search(text):
        json.loads(text, parse_float=_finite, parse_constant=_refuse)
    return found


def _finite(number: str) -> float:
    found = float(number)
    return found if math.isfinite(found) else _refuse(number)


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"the number {number:.40} is too large")
