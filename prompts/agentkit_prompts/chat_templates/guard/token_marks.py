"""Marks in control tokens: a zero-width space after the first character, and its removal from text of a model.

A mark is added to every token of an untrusted text, also to a token that has marks already, and exactly one mark is
removed from every token of a reply. Text that contained marks before is therefore the same after both steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens
from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.templates.spans import BREAK, Segment, broken_at

_MARK = re.compile(rf"{BREAK}|\\u200[bB]")
_HALF_ESCAPE = r"\\(?:u[0-9a-fA-F]{0,3})?"
"""Start of an escape at the end of a piece of JSON text."""


class TokenMarks:
    """Marks in the control tokens of a model.

    Args:
        tokens: The tokens.
        is_repeated: True to add a mark only to tokens that have marks already.
    """

    def __init__(self, tokens: ControlTokens, *, is_repeated: bool = False) -> None:
        count = "+" if is_repeated else "*"
        patterns = [_marked(tokens.anywhere, count)]
        if tokens.words:
            patterns.append(_marked(tokens.words, "+"))
        if tokens.words and not is_repeated:
            # A marker of words is a token only at the start of a line.
            patterns.append(rf"(?m:^)[^\S\n]*(?:{_marked(tokens.words, '')})")
        self._pattern = re.compile("|".join(patterns))
        self._starts = tuple({token[0] for token in tokens})

    def may_be_in(self, text: str) -> bool:
        """True if a text contains the first character of a token (fast)."""
        return any(start in text for start in self._starts)

    def offsets(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and name of each token in a text, with marks or without."""
        if not self.may_be_in(text):
            return
        for match in self._pattern.finditer(text):
            token = match[0].lstrip()
            yield match.end() - len(token), match.end(), token.replace(BREAK, "")

    def add(self, text: str, tokens: set[str]) -> str:
        """Return a text with a mark in each token; the tokens are added to `tokens`."""
        pieces: list[str] = []
        end = 0
        for start, _, token in self.offsets(text):
            tokens.add(token)
            pieces += text[end : start + 1], BREAK
            end = start + 1
        if not pieces:
            return text
        return "".join([*pieces, text[end:]])

    def add_to_parts(self, texts: Sequence[str], tokens: set[str]) -> list[str]:
        """Return neighbouring texts with a mark in each token, also in a token that they form together."""
        cuts: set[int] = set()
        start = 0
        for text in texts:
            for at, _, token in self.offsets(text):
                tokens.add(token)
                cuts.add(start + at + 1)
            start += len(text)
        for at, _, token in self.offsets("".join(texts)):
            tokens.add(token)
            cuts.add(at + 1)
        segments = [Segment(text) for text in texts]
        return [segment.text for segment in broken_at(segments, texts, sorted(cuts))]

    def add_in_json(self, text: str, tokens: set[str]) -> str:
        """Return the JSON text of arguments with marks in the tokens of its texts; other text as in `add`."""
        if "\\" not in text and not self.may_be_in(text):
            return text
        try:
            value, repeats_names = parsed_json(text)
        except (ValueError, RecursionError):
            return self.add(text, tokens)
        own: set[str] = set()
        changed = changed_texts(value, lambda item: self.add(item, own))
        if repeats_names:
            self.add(text, own)
        if not own:
            return text
        tokens |= own
        return json.dumps(changed, ensure_ascii=False)


@lru_cache(maxsize=MAX_CACHED)
def token_marks(tokens: ControlTokens, *, is_repeated: bool = False) -> TokenMarks:
    """Return the marks of these tokens, prepared once."""
    return TokenMarks(tokens, is_repeated=is_repeated)


def parsed_json(text: str) -> tuple[Any, bool]:
    """Return the data of a JSON text, and True if an object repeats a name: the data contains only its last value.

    Raises:
        ValueError: The text is not JSON.
    """
    repeats_names = False

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeats_names
        value = dict(pairs)
        repeats_names = repeats_names or len(value) < len(pairs)
        return value

    return json.loads(text, object_pairs_hook=read), repeats_names


def changed_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return JSON data with `change` applied to each text and each key."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): changed_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [changed_texts(item, change) for item in value]
    return value


def _marked(tokens: Iterable[str], count: str) -> str:
    """Return a pattern of tokens with marks. Tokens are grouped by their first characters, which is fast."""
    groups: list[str] = []
    marks = ""
    if count:
        marks = f"{BREAK}{count}"
    for first, group in groupby(
        sorted(tokens, key=lambda token: (token[0], -len(token), token)), lambda token: token[0]
    ):
        rests = "|".join([re.escape(token[1:]) for token in group])
        groups.append(f"{re.escape(first)}{marks}(?:{rests})")
    # "(?!)" never matches.
    return "|".join(groups) or "(?!)"


class Unmarking:
    """Remover of one mark from each of some tokens, in whole texts and in streams.

    Args:
        tokens: The tokens.
        is_json: True for JSON text, in which a character of a token can be an escape.
    """

    def __init__(self, tokens: Iterable[str], *, is_json: bool = False) -> None:
        spelled = [_spelled(token, is_json=is_json) for token in sorted(tokens, key=len, reverse=True)]
        mark = BREAK
        end = r"\Z"
        starts: list[str] = []
        if is_json:
            mark = rf"(?:{BREAK}|\\u200[bB])"
            end = rf"(?:{_HALF_ESCAPE})?\Z"
            starts = [rf"{_HALF_ESCAPE}\Z"]
        self._whole = re.compile("|".join([f"{first}{mark}+{''.join(rest)}" for first, *rest in spelled]))
        starts += [f"{first}(?:{end}|{mark}+{_start_of(rest, end)})" for first, *rest in spelled]
        self._start = re.compile("|".join(starts))

    def whole(self, text: str) -> str:
        """Return a text without these marks."""
        return self._whole.sub(lambda match: _MARK.sub("", match[0], count=1), text)

    def ready(self, text: str) -> int:
        """Return the number of characters that no later piece of a stream can complete to a marked token."""
        match = self._start.search(text)
        if match is None:
            return len(text)
        return match.start()


def _spelled(token: str, *, is_json: bool) -> list[str]:
    """Return a pattern of each character of a token."""
    if not is_json:
        return [re.escape(character) for character in token]
    return [_in_json(character) for character in token]


def _in_json(character: str) -> str:
    plain = json.dumps(character, ensure_ascii=False)[1:-1]
    return rf"(?:{re.escape(plain)}|(?i:\\u{ord(character):04x}))"


def _start_of(spelled: list[str], end: str) -> str:
    """Return a pattern of the end of a text after which the rest of a token can follow."""
    pattern = end
    for character in reversed(spelled[:-1]):
        pattern = f"(?:{end}|{character}{pattern})"
    return pattern
