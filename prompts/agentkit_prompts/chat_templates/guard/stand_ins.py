"""Comparison of the control tokens of a rendering with the tokens of a rendering with neutral words instead of
untrusted text.

A template whose control tokens depend on the text writes different tokens around the neutral words.
"""

from __future__ import annotations

import re
from itertools import groupby

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens
from agentkit_prompts.chat_templates.guard.tainted_text import Segments, Tree, rewrite
from agentkit_prompts.chat_templates.reasoning_tags import TRUSTED_TAGS
from agentkit_prompts.templates.spans import Segment

_FIRST = 0xF0000
_COUNT = 0xFFFD
_LENGTH = 3
"""Number of characters of a stand-in."""
_ID_LENGTH = 9
"""Number of characters of a stand-in for the id of a tool call: some templates require it."""
_ID = (".id", ".tool_call_id")
_KEY = ".key"
_NAME = (".name", _KEY, *_ID)
"""Suffixes of pointers at which equal texts become equal words."""
_THOUGHTS = frozenset(opening for opening, _ in TRUSTED_TAGS)
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")
"""Escape in the JSON of arguments: a character of the text around it."""


def with_stand_ins(tree: Tree, *, keeps_names: bool = False) -> Tree:
    """Return a tree as plain data, with a short neutral word for every untrusted text.

    Different texts become different words, but equal keys, names and ids become equal words; blank text becomes a
    space, and empty text stays empty. The number of messages, calls and keys is unchanged, but no content or length of
    a text remains.

    Args:
        tree: Input of the template, with all untrusted text tainted.
        keeps_names: Leave keys and names unchanged, for a template that looks them up.
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
                # Line breaks of empty thinking stay: some templates strip and compare them.
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
            # Equal names become equal words, because templates match calls and results.
            character = self._known.setdefault(text, character)
        return character * (_ID_LENGTH if pointer.endswith(_ID) else _LENGTH)


def _is_part_of_text(segment: Segment) -> bool:
    # An escape in the JSON of arguments is trusted, but is a character of the text around it.
    return segment.trust == "untrusted" or _ESCAPE.fullmatch(segment.text) is not None


def first_difference(tokens: ControlTokens, text: str, around: str) -> str | None:
    """Return the first control token that only one of two renderings contains, or None.

    The name of a role after a token is compared, too.

    Args:
        tokens: The control tokens.
        text: Rendering without untrusted characters in tokens.
        around: Rendering of the same tree `with_stand_ins`.
    """
    if tokens.written_in_order(text) == tokens.written_in_order(around):
        return None
    matches, expected_matches = list(tokens.written(text)), list(tokens.written(around))
    for match, expected in zip(matches, expected_matches, strict=False):
        if match[1] != expected[1]:
            return str(match[1])
        # Text after the token can start with the name of a role; in the other rendering a stand-in follows.
        follows = around[expected.end() : expected.end() + 1]
        if match[2] != expected[2] and (expected[2] or not _is_stand_in(follows)):
            return "".join(match.groups())
    shorter, longer = sorted((matches, expected_matches), key=len)
    return str(longer[len(shorter)][1]) if len(shorter) < len(longer) else None


def _is_stand_in(character: str) -> bool:
    return character != "" and _FIRST <= ord(character) < _FIRST + _COUNT
