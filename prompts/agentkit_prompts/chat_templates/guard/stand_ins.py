"""What a chat template writes around untrusted text: it is given words that mean nothing in the place of every text.

A template that writes its control tokens by what a text says writes others for the words than it did for the text.
"""

from __future__ import annotations

import re
from itertools import groupby

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens
from agentkit_prompts.chat_templates.guard.tainted_text import Run, Runs, Tree
from agentkit_prompts.chat_templates.reasoning_tags import TRUSTED_TAGS

__all__ = ["STAND_IN", "first_difference", "with_stand_ins"]

_FIRST = 0xF0000
_COUNT = 0xFFFD
_LENGTH = 3
"""Characters of a stand-in."""
STAND_IN = chr(_FIRST) * _LENGTH
"""A word of no meaning."""
_ID_LENGTH = 9
"""Characters of that of the id of a tool call: some templates take no other number."""
_ID = (".id", ".tool_call_id")
_KEY = ".key"
_NAME = (".name", _KEY, *_ID)
"""Where the same text becomes the same word."""
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
    return _StandIns(keeps_names).of(tree)


class _StandIns:
    def __init__(self, keeps_names: bool) -> None:
        self._keeps_names = keeps_names
        self._known: dict[str, str] = {}
        self._count = 0

    def of(self, tree: Tree) -> Tree:
        if type(tree) is Runs:
            return self._text(tree)
        if type(tree) is dict:
            return {self._key(key): self.of(value) for key, value in tree.items()}
        if type(tree) is list:
            return [self.of(value) for value in tree]
        return tree

    def _key(self, key: Tree) -> Tree:
        if type(key) is not Runs:
            return key
        return key.text if self._keeps_names else self._stand_in(key.text, _KEY)

    def _text(self, runs: Runs) -> str:
        if len(runs) == 1:
            return self._stand_in(runs[0].text, runs[0].pointer) if runs[0].is_tainted else runs[0].text
        made: list[str] = []
        for is_tainted, stretch in groupby(runs, _is_of_text):
            listed = list(stretch)
            text = "".join([run.text for run in listed])
            if is_tainted and made and made[-1] in _THOUGHTS and text and not text.strip("\n"):
                text = "\n"  # no thoughts at all: some templates take the line breaks off and look
            elif is_tainted:
                text = self._stand_in(text, listed[0].pointer)
            made.append(text)
        return "".join(made)

    def _stand_in(self, text: str, pointer: str) -> str:
        if not text or text.isspace():
            return text[:1] and " "
        if self._keeps_names and pointer.endswith(_NAME):
            return text
        self._count += 1
        made = chr(_FIRST + self._count % _COUNT)
        if pointer.endswith(_NAME):
            made = self._known.setdefault(text, made)
        return made * (_ID_LENGTH if pointer.endswith(_ID) else _LENGTH)


def _is_of_text(run: Run) -> bool:
    return run.is_tainted or _ESCAPE.fullmatch(run.text) is not None


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
    found, wanted = list(tokens.written(text)), list(tokens.written(around))
    for one, expected in zip(found, wanted, strict=False):
        if one[1] != expected[1]:
            return str(one[1])
        if one[2] != expected[2] and (expected[2] or not _is_stand_in(around[expected.end() : expected.end() + 1])):
            return "".join(one.groups())
    if len(found) == len(wanted):
        return None
    return str(max(found, wanted, key=len)[min(len(found), len(wanted))][1])


def _is_stand_in(character: str) -> bool:
    return character != "" and _FIRST <= ord(character) < _FIRST + _COUNT
