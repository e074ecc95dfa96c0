"""JSON in the text of a model: after its thinking, in a code fence, or between sentences."""

from __future__ import annotations

import re

from agentkit_prompts.chat_templates.reasoning_tags import REASONING_TAGS

_THINKING_END = re.compile("|".join([re.escape(closing) for _, closing in REASONING_TAGS]))
_THINKING_START = re.compile(rf"\s*+(?:{'|'.join([re.escape(opening) for opening, _ in REASONING_TAGS])})")
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
"""Scalar items up to the next inner object or list, or up to the closing bracket (`end`)."""
_EMPTY = {"[": re.compile(rf"{_SPACE}(?P<end>\])"), "{": re.compile(rf"{_SPACE}(?P<end>}})")}
"""Closing bracket of an object or list without items."""
_AFTER_ITEM = {"[": re.compile(rf"{_SPACE}(?:(?P<end>\])|,)"), "{": re.compile(rf"{_SPACE}(?:(?P<end>}})|,)")}
"""Comma or closing bracket (`end`) after an inner object or list."""


def text_after_thinking(text: str) -> str:
    """Return the text after the thinking of a model; empty if the thinking does not end."""
    ends = list(_THINKING_END.finditer(text))
    if ends:
        return text[ends[-1].end() :]
    if _THINKING_START.match(text):
        return ""
    return text


def without_fence(text: str) -> str:
    """Return the text inside a code fence around the whole text; a text without such a fence is returned stripped."""
    text = text.strip()
    match = _FENCE.fullmatch(text)
    if match:
        return match[1].strip()
    return text


def json_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each outermost JSON object or list, in linear time."""
    spans: list[tuple[int, int]] = []
    ends: dict[int, int] = {}
    at = 0
    while (opening := _OPENING.search(text, at)) is not None:
        start = opening.start()
        if start not in ends:
            _store_ends(text, start, ends)
        end = ends.pop(start)
        if end:
            spans.append((start, end))
            at = end
        else:
            at = opening.end()
    return spans


def _store_ends(text: str, start: int, ends: dict[int, int]) -> None:
    """Store in `ends` the end of the object or list at `start`, and the ends of all objects and lists inside of it.

    The end is 0 if the JSON is invalid or cut. The ends inside are stored so that no character is read three times:
    only a bracket that is part of a string is read a second time, as the start of another object or list.
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
                match = _AFTER_ITEM[text[openings[-1]]].match(text, at)
        if match is None:
            break
        at = match.end()
    ends.update(dict.fromkeys(openings, 0))
