"""Checks that data is JSON, and the places of values that are not JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice

from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.context.nested import iter_placed_nodes
from agentkit_prompts.errors import ContextError, Problem, Problems, brief
from agentkit_prompts.limits import MAX_DIGITS, MAX_PROBLEMS

MAX_INT = 10**MAX_DIGITS
"""Integers must be smaller: Python does not write longer integers as text, and most JSON readers reject them."""


def fits_json(value: object, where: str, problems: Problems) -> bool:
    """True if a value can be written as JSON; otherwise the places of wrong values are added to `problems`."""
    return text_of_json(value, where, problems) is not None


def text_of_json(value: object, where: str, problems: Problems) -> str | None:
    """Return a value as JSON text; or None, after the places of wrong values are added to `problems`."""
    try:
        return json.dumps(freeze(value, json_only=True), ensure_ascii=False, allow_nan=False)
    except (ContextError, TypeError, ValueError):
        first = [*islice(_not_json(value, where), MAX_PROBLEMS)]
        problems += first or [Problem(where, "is cyclic or nests too deeply")]
        return None


def _not_json(value: object, where: str) -> Iterator[Problem]:
    for node in iter_placed_nodes(value, where):
        for reason in _reasons(node.value):
            yield Problem(node.place, reason)


def _reasons(value: object) -> Iterator[str]:
    """Yield the reasons why a value is not JSON, without the reasons of values inside it."""
    match value:
        case None | str() | list() | tuple():
            pass
        case int() | float():
            if not -MAX_INT < value < MAX_INT:
                yield f"{brief(value)} is not JSON"
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    yield f"keys must be text, got {brief(key)}"
        case _:
            yield f"{type(value).__name__} is not JSON"
