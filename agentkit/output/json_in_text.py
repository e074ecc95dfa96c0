"""JSON that a model puts into its words: behind what it thinks, in a code fence, between sentences."""

from __future__ import annotations

import re

from agentkit_prompts.chat_templates.reasoning_tags import REASONING_TAGS

__all__ = ["behind_thinking", "json_spans", "without_fence"]

_THOUGHT = re.compile("|".join([re.escape(closing) for _, closing in REASONING_TAGS]))
_THINKS = re.compile(rf"\s*+(?:{'|'.join([re.escape(opening) for opening, _ in REASONING_TAGS])})")
_FENCE = re.compile(r"```[\w-]*+\s*+(.*)```", re.S)

_OPENING = re.compile(r"[{\[]")
_SPACE = r"[ \t\n\r]*+"
_STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_SCALAR = rf"(?:{_STRING}|{_NUMBER}|true|false|null|NaN|-?Infinity)"
_KEY = rf"{_STRING}{_SPACE}:{_SPACE}"
_ITEMS = {
    "[": re.compile(
        rf"{_SPACE}(?:{_SCALAR}{_SPACE},{_SPACE})*+(?:{_SCALAR}{_SPACE}(?P<end>\])|(?=[{{\[]))",
    ),
    "{": re.compile(
        rf"{_SPACE}(?:{_KEY}{_SCALAR}{_SPACE},{_SPACE})*+(?:{_KEY}{_SCALAR}{_SPACE}(?P<end>}})|{_KEY}(?=[{{\[]))"
    ),
}
"""From an item on: the items up to the next one that holds others, or up to the end."""
_EMPTY = {"[": re.compile(rf"{_SPACE}(?P<end>\])"), "{": re.compile(rf"{_SPACE}(?P<end>}})")}
_BEHIND = {"[": re.compile(rf"{_SPACE}(?:(?P<end>\])|,)"), "{": re.compile(rf"{_SPACE}(?:(?P<end>}})|,)")}
"""What stands behind an item."""


def behind_thinking(text: str) -> str:
    """Return what follows the thoughts of a model; nothing where they do not end."""
    ends = list(_THOUGHT.finditer(text))
    if ends:
        return text[ends[-1].end() :]
    if _THINKS.match(text):
        return ""
    return text


def without_fence(text: str) -> str:
    """Return the text inside a code fence that is all there is."""
    text = text.strip()
    found = _FENCE.fullmatch(text)
    if found:
        return found[1].strip()
    return text


def json_spans(text: str) -> list[tuple[int, int]]:
    """Return where objects and lists in JSON begin and end, those inside others left out; in linear time."""
    spans: list[tuple[int, int]] = []
    ends: dict[int, int] = {}
    at = 0
    while (opening := _OPENING.search(text, at)) is not None:
        start = opening.start()
        if start not in ends:
            _walk(text, start, ends)
        end = ends.pop(start)
        at = end
        if end <= 0:
            at = opening.end()
        if end > 0:
            spans.append((start, at))
    return spans


def _walk(text: str, start: int, ends: dict[int, int]) -> None:
    """Write down where the object or list at `start`, and those that begin in it, end; 0 for those that do not.

    What began in it is the same when it is read from its own start, so it is not walked again. Only what looks like an
    opening inside a string is left to another walk, which may take other parts for strings: no place is in three walks.
    """
    begun = [start]
    at = start + 1
    while begun:
        kind = text[begun[-1]]
        found = _ITEMS[kind].match(text, at) or (_EMPTY[kind].match(text, at) if at == begun[-1] + 1 else None)
        if found is not None and found["end"] is None:
            begun.append(found.end())
            at = found.end() + 1
            continue
        while found is not None and found["end"] is not None:
            at = found.end()
            ends[begun.pop()] = at
            found = None
            if begun:
                found = _BEHIND[text[begun[-1]]].match(text, at)
        if found is None:
            break
        at = found.end()
    ends.update(dict.fromkeys(begun, 0))
