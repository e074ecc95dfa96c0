"""Compares the control tokens of a rendering with those around words of no meaning, which replace all untrusted text.

A template whose control tokens depend on a text writes others for the words than for the text.
"""

from __future__ import annotations

import re
from itertools import groupby

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens
from agentkit_prompts.chat_templates.guard.tainted_text import Segments, Tree, rewrite
from agentkit_prompts.chat_templates.reasoning_tags import TRUSTED_TAGS
from agentkit_prompts.templates.spans import Segment

__all__ = ["STAND_IN", "first_difference", "with_stand_ins"]

_FIRST = 0xF0000
_COUNT = 0xFFFD
_LENGTH = 3
"""Characters of a stand-in."""
STAND_IN = chr(_FIRST) * _LENGTH
"""A word of no meaning."""
_ID_LENGTH = 9
"""Characters of a stand-in of the id of a tool call: some templates take no other number."""
_ID = (".id", ".tool_call_id")
_KEY = ".key"
_NAME = (".name", _KEY, *_ID)
"""Ends of pointers at which the same text becomes the same word."""
_THOUGHTS = frozenset(opening for opening, _ in TRUSTED_TAGS)
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")
"""An escape in the JSON of arguments: a character of the text around it."""


def with_stand_ins(tree: Tree, *, keeps_names: bool = False) -> Tree:
    """Return a tree as plain data, with a short word of no meaning for every untrusted text.

    Each becomes another word, but the same key, name or id the same; blank text becomes a space, and empty text stays.
    So there are as many messages, calls and keys as before, but nothing is left of what they say, nor how long it is.

    Args:
        tree: What is rendered, with everything untrusted in it tainted.
        keeps_names: Leave keys and names as they are, for a template that looks some up.
    """
    words = _StandIns(keeps_names)
    return rewrite(tree, words.text, words.key)


class _StandIns:
    """The stand-ins of one tree."""

    def __init__(self, keeps_names: bool) -> None:
        self._keeps_names = keeps_names
        self._known: dict[str, str] = {}
        self._count = 0

    def key(self, key: Segments) -> str:
        return key.text if self._keeps_names else self._stand_in(key.text, _KEY)

    def text(self, segments: Segments) -> str:
        texts: list[str] = []
        for is_untrusted, neighbours in groupby(segments, _is_part_of_text):
            stretch = Segments(neighbours)
            if not is_untrusted:
                texts.append(stretch.text)
            elif texts and texts[-1] in _THOUGHTS and stretch.text and not stretch.text.strip("\n"):
                # An empty thought: some templates strip the line breaks and compare.
                texts.append("\n")
            else:
                texts.append(self._stand_in(stretch.text, stretch[0].pointer))
        return "".join(texts)

    def _stand_in(self, text: str, pointer: str) -> str:
        # Many templates test if a text is empty or blank.
        if not text or text.isspace():
            return text[:1] and " "
        if self._keeps_names and pointer.endswith(_NAME):
            return text
        self._count += 1
        character = chr(_FIRST + self._count % _COUNT)
        if pointer.endswith(_NAME):
            # The same name becomes the same word, because templates match calls and results.
            character = self._known.setdefault(text, character)
        return character * (_ID_LENGTH if pointer.endswith(_ID) else _LENGTH)


def _is_part_of_text(segment: Segment) -> bool:
    # An escape in the JSON of arguments is trusted, but is a character of the text around it.
    return segment.trust == "untrusted" or _ESCAPE.fullmatch(segment.text) is not None


def first_difference(tokens: ControlTokens, text: str, around: str) -> str | None:
    """Return the first control token that is in a text but not around stand-ins, or the other way round.

    The name of a role behind a token counts too. None when they are the same.

    Args:
        tokens: The control tokens.
        text: What the template wrote, where nothing untrusted is part of a token.
        around: What it wrote of the same tree `with_stand_ins`.
    """
    if tokens.written_in_order(text) == tokens.written_in_order(around):
        return None
    matches, expected_matches = list(tokens.written(text)), list(tokens.written(around))
    for match, expected in zip(matches, expected_matches, strict=False):
        if match[1] != expected[1]:
            return str(match[1])
        # A text after the token may begin with the name of a role: then a stand-in follows in the other rendering.
        follows = around[expected.end() : expected.end() + 1]
        if match[2] != expected[2] and (expected[2] or not _is_stand_in(follows)):
            return "".join(match.groups())
    shorter, longer = sorted((matches, expected_matches), key=len)
    return str(longer[len(shorter)][1]) if len(shorter) < len(longer) else None


def _is_stand_in(character: str) -> bool:
    return character != "" and _FIRST <= ord(character) < _FIRST + _COUNT
