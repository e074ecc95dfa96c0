"""Control tokens of a chat template: their places in a text, and texts that could become a part of a token.

A token in brackets counts anywhere. A marker of plain words, such as `User:`, counts at the start of a line only,
also after invisible characters. If the template itself writes it inside of lines, it counts anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import repeat
from operator import contains
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.templates.unseen_characters import UNSEEN

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.protocol import ChatTemplate

_LINE_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_BREAK = re.compile(f"[{_LINE_BREAKS}]")
_INDENT = f"{UNSEEN}*"
_BLANK = re.compile(_INDENT)
_BRACKETS = frozenset("<>[]{}()|\uff5c\u3008\u3009\u300a\u300b\u300c\u300d\u3010\u3011\u27e8\u27e9\uff1c\uff1e")
_JSON_SYNTAX = frozenset('"\\')
_BRACKETED = re.compile(r"<{1,2}[^<>\n]+>{1,2}|\[[^\[\]\n]+\]")
_WORD = re.compile(r"[\w-]+")
_ROLES = "assistant|bot|developer|environment|function|human|ipython|model|observation|system|tool|user"
_MIN_LENGTH = 2
"""Minimum characters of a token: a shorter token cannot be broken."""

Policy: TypeAlias = Literal["escape", "reject", "allow"]
"""Policy for untrusted text that forms a control token."""


class TokenMatch(NamedTuple):
    """One control token in a text."""

    start: int
    end: int
    token: str


class ControlTokens:
    """Tokens that only a chat template may write.

    White space around a token is ignored. Tokens of one character are left out, because they cannot be broken.

    Attributes:
        anywhere: Tokens that count anywhere in a text, longest first.
        words: Markers of plain words, which count at the start of a line only, longest first.
        alphabet: Every character of a token except white space, quotes and backslashes.
        telling: Characters of `alphabet` that occur at the boundaries of every token.
        longest: Characters of the longest token.
    """

    def __init__(self, tokens: Iterable[str], inline: Collection[str] = ()) -> None:
        ordered = _longest_first(tokens)
        words = {token for token in ordered if token not in inline and _BRACKETS.isdisjoint(token)}
        self.anywhere = tuple(token for token in ordered if token not in words)
        self.words = tuple(token for token in ordered if token in words)
        self.longest = max(map(len, ordered), default=0)
        self._groups = tuple(_by_sign(self.anywhere, self.words).items())
        self.alphabet = frozenset(_characters("".join(ordered)))
        self.telling = frozenset(character for token in ordered for character in _characters(_telling(token)))
        # Alternatives are tried in their order, so the longest token at a place matches. "(?!)" never matches.
        self._anywhere = re.compile(_alternatives(self.anywhere))
        self._everywhere_text = f"({_alternatives(ordered)})((?i:{_ROLES})?)"

    def find(self, text: str) -> Iterator[TokenMatch]:
        """Yield every control token in `text`; at each place the longest token, including overlapping tokens."""
        start = 0
        while self.anywhere and (match := self._anywhere.search(text, start)) is not None:
            yield TokenMatch(match.start(), match.end(), match[0])
            start = match.start() + 1
        if self.words:
            for match in self._at_line_start.finditer(text):
                yield TokenMatch(match.start(1), match.end(1), match[1])

    def written(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the matches of tokens in `text`; markers of words count inside lines, too.

        The first group of each match is the token, the second the name of a role directly after it, or empty.
        """
        return self._everywhere.finditer(text)

    def written_in_order(self, text: str) -> list[tuple[str, str]]:
        """Return each token of `written`, with the role after it."""
        return self._everywhere.findall(text)

    def may_be_in(self, text: str) -> bool:
        """True if `text` contains a token; a marker of words counts anywhere."""
        # A plain loop, because this runs for every new text and usually ends at the first test.
        for sign, tokens in self._groups:
            if sign in text:
                for token in tokens:
                    if token in text:
                        return True
        return False

    def is_reached_from_left(self, text: str) -> bool:
        """True if a token could start before `text` and end inside or after it."""
        # Look tokens up by a character: a tokenizer can have thousands of tokens, and most texts match no token.
        if text.startswith(self._ends.get(text[:1], ())):
            return True
        return len(text) < self.longest and any(map(contains, self._without_first, repeat(text)))

    def is_reached_from_right(self, text: str, *, is_start: bool = False) -> bool:
        """True if a token could end after `text` and start inside it, or before it unless `is_start`."""
        if text.endswith(self._beginnings.get(text[-1:], ())):
            return True
        return not is_start and len(text) < self.longest and any(map(contains, self._without_last, repeat(text)))

    @cached_property
    def _everywhere(self) -> re.Pattern[str]:
        return re.compile(self._everywhere_text)

    @cached_property
    def _at_line_start(self) -> re.Pattern[str]:
        return re.compile(rf"(?:\A|(?<=[{_LINE_BREAKS}])){_INDENT}(?=({_alternatives(self.words)}))")

    @cached_property
    def _without_first(self) -> tuple[str, ...]:
        """The tokens without their first characters."""
        return tuple([token[1:] for token in self])

    @cached_property
    def _without_last(self) -> tuple[str, ...]:
        """The tokens without their last characters."""
        return tuple([token[:-1] for token in self])

    @cached_property
    def _ends(self) -> Mapping[str, tuple[str, ...]]:
        """The ends of tokens that start before a text, by their first character."""
        return _grouped((token[at:] for token in self for at in range(1, len(token))), 0)

    @cached_property
    def _beginnings(self) -> Mapping[str, tuple[str, ...]]:
        """The starts of tokens that end after a text, by their last character."""
        return _grouped((token[:at] for token in self for at in range(1, len(token))), -1)

    @cached_property
    def in_json(self) -> ControlTokens:
        """The tokens, and their spellings inside a JSON string."""

        def spelled(tokens: Iterable[str]) -> list[str]:
            return [form for token in tokens for form in (token, json.dumps(token, ensure_ascii=False)[1:-1])]

        return ControlTokens(spelled(self), spelled(self.anywhere))

    def fits_inside(self, text: str) -> bool:
        """True if a token contains `text`, so that text around it could complete the token."""
        text = text.strip()
        return 0 < len(text) <= self.longest and any(text in token for token in self)

    def is_harmless(self, text: str) -> bool:
        """True if no token can contain a character of `text` (fast, conservative check)."""
        has_sign = any(map(text.__contains__, self.telling))
        if not has_sign and not self.fits_inside(text):
            return True
        return self.is_apart(text)

    def is_apart(self, word: str) -> bool:
        """True if `word` contains only letters, digits, `_` and `-`, and cannot be a part of a token."""
        return _WORD.fullmatch(word) is not None and not (
            self.may_be_in(word) or self.is_reached_from_left(word) or self.is_reached_from_right(word)
        )

    def __iter__(self) -> Iterator[str]:
        return iter((*self.anywhere, *self.words))

    def __bool__(self) -> bool:
        return bool(self.alphabet)


@lru_cache(maxsize=MAX_CACHED)
def control_tokens_of(tokens: tuple[str, ...], inline: tuple[str, ...] = ()) -> ControlTokens:
    """Return these tokens, prepared once; tokens that are `inline` count anywhere."""
    return ControlTokens(tokens, inline)


def tokens_of(template: ChatTemplate) -> ControlTokens:
    """Return the control tokens of a chat template, and its stop words.

    A template that writes markers of words inside of lines, such as ` USER: ` of Vicuna, lists them in
    `inline_markers`.
    """
    return control_tokens_of(texts_of_tokens(template), getattr(template, "inline_markers", ()))


def texts_of_tokens(template: ChatTemplate) -> tuple[str, ...]:
    """Return the texts of the control tokens of a chat template, and its stop words."""
    return (*template.control_tokens, *(getattr(template, "stop_words", None) or ()))


def _longest_first(tokens: Iterable[str]) -> list[str]:
    """Return the tokens that can be broken, in the order in which a regular expression must try them."""
    stripped = {token.strip() for token in tokens}
    return sorted([token for token in stripped if len(token) >= _MIN_LENGTH], key=lambda token: (-len(token), token))


def _by_sign(anywhere: Iterable[str], words: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return tokens grouped by a character that each of them contains: a text without the character contains no token
    of its group.
    """
    groups: dict[str, list[str]] = {}
    for token in anywhere:
        sign = next((character for character in token if character in _BRACKETS), token[0])
        groups.setdefault(sign, []).append(token)
    if words:
        groups[""] = [*words]
    return {sign: tuple(tokens) for sign, tokens in groups.items()}


def _grouped(parts: Iterable[str], at: int) -> Mapping[str, tuple[str, ...]]:
    """Return parts of tokens by their character at an index."""
    groups: dict[str, set[str]] = {}
    for part in parts:
        groups.setdefault(part[at], set()).add(part)
    return {character: tuple(group) for character, group in groups.items()}


def _alternatives(tokens: Iterable[str]) -> str:
    return "|".join(map(re.escape, tokens)) or "(?!)"


def is_at_line_start(text: str) -> bool:
    """True if text after `text` starts a line; also True for an empty text."""
    return _BLANK.fullmatch(_BREAK.split(text)[-1]) is not None


def _characters(text: str) -> Iterator[str]:
    """Yield the characters of a token, except white space, which templates strip, and quotes, which JSON escapes."""
    return (character for character in text if not character.isspace() and character not in _JSON_SYNTAX)


def _telling(token: str) -> str:
    """Return the punctuation of a token that starts and ends with punctuation; every character of any other token."""
    if token[0].isalnum() or token[-1].isalnum():
        return token
    return "".join(character for character in token if not character.isalnum())


def tokens_and_markers(tokens: Iterable[str], markers: Iterable[str]) -> tuple[str, ...]:
    """Return each token once, in order: `tokens` whole, and the bracketed tokens of each marker, or its words if it has
    no bracketed token.

    Markers of words, such as `USER:`, are returned without the white space around them. They count only at the start of
    a line. A token without a bracket is a marker of words.
    """
    texts = [token.strip() for token in tokens]
    for marker in markers:
        texts += _BRACKETED.findall(marker) or [marker.strip()]
    return tuple(dict.fromkeys(filter(None, texts)))
