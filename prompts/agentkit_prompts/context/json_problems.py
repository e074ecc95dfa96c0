"""Check that data is JSON, and find every place that is not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.errors import ContextError, Problem, Problems, brief
from agentkit_prompts.limits import MAX_DIGITS

__all__ = ["MAX_INT", "fits_json"]

MAX_INT = 10**MAX_DIGITS
"""Python refuses to write longer numbers as text, and most readers of JSON refuse to read them."""


def fits_json(value: object, where: str, problems: Problems) -> bool:
    """True if a value can be written as JSON once it is frozen; adds every place that cannot to the problems."""
    try:
        json.dumps(freeze(value, json_only=True), allow_nan=False)
        return True
    except (ContextError, TypeError, ValueError):
        pass
    try:
        places = list(_not_json(value, where))
    except RecursionError:
        places = []
    problems += places or [Problem(where, "is cyclic or nests too deeply")]
    return False


def _not_json(value: object, where: str) -> Iterator[Problem]:
    if value is None or isinstance(value, str):
        return
    if isinstance(value, int | float):
        if not -MAX_INT < value < MAX_INT:
            yield Problem(where, f"{brief(value)} is not JSON")
    elif isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                yield Problem(where, f"keys must be text, got {key!r:.80}")
        for key, item in value.items():
            yield from _not_json(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _not_json(item, f"{where}[{index}]")
    else:
        yield Problem(where, f"{type(value).__name__} is not JSON")
