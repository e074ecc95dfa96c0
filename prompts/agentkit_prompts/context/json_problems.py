"""Whether data is JSON, and every place at which it is not."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.errors import ContextError, Problem, Problems, brief

__all__ = ["MAX_INT", "fits_json"]

MAX_INT = 10**4000
"""Longer numbers Python refuses to write as text, and most readers of JSON to read."""


def fits_json(value: object, where: str, problems: Problems) -> bool:
    """Whether a value can be written as JSON once it is frozen; notes every place where it cannot."""
    try:
        json.dumps(freeze(value, json_only=True), allow_nan=False)
        return True
    except (ContextError, TypeError, ValueError):
        pass
    try:
        found = _not_json(value, where)
    except RecursionError:
        found = []
    problems += found or [Problem(where, "is cyclic or nests too deeply")]
    return False


def _not_json(value: object, where: str) -> Problems:
    if value is None or isinstance(value, str) or (isinstance(value, int | float) and -MAX_INT < value < MAX_INT):
        return []
    if isinstance(value, Mapping):
        wrong = [Problem(where, f"keys must be text, got {key!r:.80}") for key in value if not isinstance(key, str)]
        return wrong + [one for key, item in value.items() for one in _not_json(item, f"{where}.{key}")]
    if isinstance(value, list | tuple):
        return [one for index, item in enumerate(value) for one in _not_json(item, f"{where}[{index}]")]
    name = brief(value) if isinstance(value, int | float) else type(value).__name__
    return [Problem(where, f"{name} is not JSON")]
