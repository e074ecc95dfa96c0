"""Check that data is JSON, and find every place that is not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.context.nested import iter_placed_nodes
from agentkit_prompts.errors import ContextError, Problem, Problems, brief
from agentkit_prompts.limits import MAX_DIGITS

__all__ = ["MAX_INT", "fits_json"]

MAX_INT = 10**MAX_DIGITS
"""Python refuses to write longer numbers as text, and most readers of JSON refuse to read them."""


def fits_json(value: object, where: str, problems: Problems) -> bool:
    """True if a value can be written as JSON once it is frozen; adds every place that cannot to the problems."""
    try:
        json.dumps(freeze(value, json_only=True), allow_nan=False)
    except (ContextError, TypeError, ValueError):
        problems += [*_not_json(value, where)] or [Problem(where, "is cyclic or nests too deeply")]
        return False
    return True


def _not_json(value: object, where: str) -> Iterator[Problem]:
    for node in iter_placed_nodes(value, where):
        for reason in _reasons(node.value):
            yield Problem(node.place, reason)


def _reasons(value: object) -> list[str]:
    """Return the reasons why JSON cannot write a value, apart from the values inside it."""
    match value:
        case None | str() | list() | tuple():
            return []
        case int() | float() if -MAX_INT < value < MAX_INT:
            return []
        case int() | float():
            return [f"{brief(value)} is not JSON"]
        case Mapping():
            return [f"keys must be text, got {brief(key)}" for key in value if not isinstance(key, str)]
    return [f"{type(value).__name__} is not JSON"]
