"""JSON in the text of a model: after its thinking, in a code fence, or between sentences."""

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
"""Items up to the next object or list, or up to the end."""
_EMPTY = {"[": re.compile(rf"{_SPACE}(?P<end>\])"), "{": re.compile(rf"{_SPACE}(?P<end>}})")}
_BEHIND = {"[": re.compile(rf"{_SPACE}(?:(?P<end>\])|,)"), "{": re.compile(rf"{_SPACE}(?:(?P<end>}})|,)")}
"""Separator or end after an item."""


def behind_thinking(text: str) -> str:
    """Return the text after the thinking of a model; empty if the thinking does not end."""
    ends = list(_THOUGHT.finditer(text))
    if ends:
        return text[ends[-1].end() :]
    if _THINKS.match(text):
        return ""
    return text


def without_fence(text: str) -> str:
    """Return the text inside a code fence around the whole text."""
    text = text.strip()
    match = _FENCE.fullmatch(text)
    if match:
        return match[1].strip()
    return text


def json_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each outermost JSON object or list; in linear time."""
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
    """Store the ends of the object or list at `start`, and of the objects and lists inside it; 0 without an end.

    Inner objects have the same end when they are read from their start, so they are not read again. Only an opening
    inside a string is read again, with other strings: no character is read three times.
    """
    openings = [start]
    at = start + 1
    while openings:
        kind = text[openings[-1]]
        match = _ITEMS[kind].match(text, at) or (_EMPTY[kind].match(text, at) if at == openings[-1] + 1 else None)
        if match is not None and match["end"] is None:
            openings.append(match.end())
            at = match.end() + 1
            continue
        while match is not None and match["end"] is not None:
            at = match.end()
            ends[openings.pop()] = at
            match = None
            if openings:
                match = _BEHIND[text[openings[-1]]].match(text, at)
        if match is None:
            break
        at = match.end()
    ends.update(dict.fromkeys(openings, 0))
