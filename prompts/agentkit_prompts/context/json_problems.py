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
        match node.value:
            case None | str() | list() | tuple():
                continue
            case int() | float() as number:
                if not -MAX_INT < number < MAX_INT:
                    yield Problem(node.place, f"{brief(number)} is not JSON")
            case Mapping() as mapping:
                names = [key for key in mapping if not isinstance(key, str)]
                yield from [Problem(node.place, f"keys must be text, got {brief(name)}") for name in names]
            case other:
                yield Problem(node.place, f"{type(other).__name__} is not JSON")
