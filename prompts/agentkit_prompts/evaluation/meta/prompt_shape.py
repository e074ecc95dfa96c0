"""Prompts of one shape are written alike: what a meta template makes of one is kept as a plan for the next.

The shape of a prompt is its roles, sections and blank texts. The rows of a dataset have few shapes, and a meta template
never looks into a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

from agentkit_prompts.evaluation.prompt_list import PromptList

__all__ = ["Plan", "plan_of", "shape_of"]

_Parts: TypeAlias = tuple[str | int, ...]
"""Text, and the positions of items whose text goes there."""
Plan: TypeAlias = Callable[[PromptList], Any]

_PLACE = re.compile("\x00(\\d+)\x00")


def shape_of(prompt: Sequence[Any]) -> tuple[Hashable, ...] | None:
    """Return what a prompt has beside its texts; None for one that has more than roles, sections and texts."""
    found: list[Hashable] = []
    depth = 0
    for item in prompt:
        if type(item) is str:
            found.append(True if item.strip() else item)
            continue
        if type(item) is not dict:
            return None
        text, role = item.get("prompt"), item.get("role")
        if type(text) is str and type(role) is str:
            fallback = item.get("fallback_role")
            if len(item) != (2 if fallback is None else 3) or type(fallback) not in (str, type(None)):
                return None
            found.append((role, fallback, bool(text)))
        elif len(item) == 2 and "section" in item and item.get("pos") in ("begin", "end"):
            depth += 1 if item["pos"] == "begin" else -1
            if depth < 0 or type(item["section"]) is not str:
                return None
            found.append((item["section"], item["pos"]))
        else:
            return None
    return None if depth else tuple(found)


def plan_of(prompt: PromptList, write: Callable[[PromptList], Any]) -> Plan | None:
    """Return what writes prompts of the shape of this one as `write` does; None where that is not known."""
    probe = PromptList()
    for position, item in enumerate(prompt):
        mark = f"\x00{position}\x00"
        if isinstance(item, str):
            probe.append(mark if item.strip() else item)
        else:
            probe.append({**item, "prompt": mark} if item.get("prompt") else dict(item))
    made = write(probe)
    if isinstance(made, str):
        parts = _parts(made)
        return lambda given: _filled(parts, given)
    if not isinstance(made, list) or not all(map(_is_plain, made)):
        return None
    messages = [
        [(key, _parts(value)) for key, value in one.items()] if isinstance(one, dict) else _parts(one) for one in made
    ]
    kind = type(made)

    def fill(given: PromptList) -> Any:
        return kind(
            [
                {key: _filled(parts, given) for key, parts in one} if isinstance(one, list) else _filled(one, given)
                for one in messages
            ]
        )

    return fill


def _is_plain(item: object) -> bool:
    return isinstance(item, str) or (isinstance(item, dict) and all(isinstance(one, str) for one in item.values()))


def _parts(text: str) -> _Parts:
    pieces = _PLACE.split(text)
    return tuple(int(piece) if number % 2 else piece for number, piece in enumerate(pieces) if piece)


def _filled(parts: _Parts, given: PromptList) -> str:
    if len(parts) == 1:
        part = parts[0]
        return part if isinstance(part, str) else _text(given[part])
    return "".join([part if isinstance(part, str) else _text(given[part]) for part in parts])


def _text(item: Any) -> str:
    return item if type(item) is str else str(item["prompt"])
