"""The form of a dialogue template: sections of texts and role items, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkit_prompts.errors import nearest

__all__ = ["SECTIONS", "items_of", "problems_of"]

SECTIONS = ("begin", "round", "end")
"""The sections of a dialogue, in order; `round` is required."""


def items_of(value: Any) -> Sequence[Any]:
    """Return the items of a section: a list as it is, one item by itself, nothing for None."""
    return () if value is None else value if isinstance(value, list | tuple) else (value,)


def problems_of(template: object) -> list[str]:
    """Say what keeps `template` from being a dialogue: everything at once."""
    if not isinstance(template, Mapping):
        return [f"template must be a dialogue with a 'round' of role items, got {type(template).__name__}"]
    found = [f"unknown section {key!r}{nearest(str(key), SECTIONS)}" for key in template if key not in SECTIONS]
    if "round" not in template:
        found.append("template has no 'round': a dialogue needs the list of its turns")
    for name in SECTIONS:
        for position, item in enumerate(items_of(template.get(name))):
            where = f"{name}[{position}]"
            if isinstance(item, Mapping):
                if not isinstance(item.get("role"), str):
                    found.append(f"{where} has no role that is text")
                if not isinstance(item.get("prompt", ""), str):
                    found.append(f"{where}: the prompt must be text, got {type(item['prompt']).__name__}")
            elif not isinstance(item, str):
                found.append(f"{where} must be text or a role item, got {type(item).__name__}")
    return found
