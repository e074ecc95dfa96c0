"""JSON that a model puts into its words: behind what it thinks, in a code fence, between sentences."""

from __future__ import annotations

import re

from agentkit_prompts.chat_templates.tool_calls.json_calls import decoded
from agentkit_prompts.chat_templates.tool_calls.thoughts import THOUGHT_TAGS

__all__ = ["behind_thinking", "json_spans", "without_fence"]

_THOUGHT = re.compile("|".join([re.escape(closing) for _, closing in THOUGHT_TAGS]))
_THINKS = re.compile(rf"\s*+(?:{'|'.join([re.escape(opening) for opening, _ in THOUGHT_TAGS])})")
_OPENING = re.compile(r"[{\[]")
_FENCE = re.compile(r"```[\w-]*+\s*+(.*)```", re.S)
_MAX_FAILED = 1_000
"""Brackets that open nothing, after which a text is not looked through any further."""


def behind_thinking(text: str) -> str:
    """Return what follows the thoughts of a model; nothing where they do not end."""
    ends = list(_THOUGHT.finditer(text))
    if ends:
        return text[ends[-1].end() :]
    return "" if _THINKS.match(text) else text


def without_fence(text: str) -> str:
    """Return the text inside a code fence that is all there is."""
    text = text.strip()
    found = _FENCE.fullmatch(text)
    return found[1].strip() if found else text


def json_spans(text: str) -> list[tuple[int, int]]:
    """Return where objects and lists in JSON begin and end, those inside others left out."""
    spans: list[tuple[int, int]] = []
    at = failed = 0
    while failed < _MAX_FAILED and (opening := _OPENING.search(text, at)) is not None:
        found = decoded(text, opening.start())
        if found is None:
            at = opening.end()
            failed += 1
        else:
            at = found[1]
            spans.append((opening.start(), at))
    return spans
