"""What begins a message or an item in plain text: the head of a line, which untrusted text must not write.

A head counts at the start of a line, also behind characters that are not seen: white space, control and format
characters (all of Cc, Cf and Zs), surrogates, fillers, variation selectors, tags, and the combining marks that Unicode
gives to letters of any script (those of the script "Inherited"). A head that holds an untrusted character is broken by
a zero-width space behind its first one. Letters that only look like those of a head, such as Cyrillic ones, are not
covered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from agentkit_prompts.templates.rendered import FromSegments, Rendered
from agentkit_prompts.templates.spans import Segment, broken_at, insert_breaks

__all__ = ["CALL", "MESSAGE", "UNSEEN", "WORD_END", "LineHeads"]

_UNSEEN = (
    "\x00-\x09\x0e-\x1b\x1f\x20\x7f-\x84\x86-\xa0\xad\u0300-\u036f\u0483-\u0489\u0600-\u0605\u061c\u064b-\u0655"
    "\u0670\u06dd\u070f\u0890\u0891\u08e2\u0951-\u0954\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u1ab0-\u1aff"
    "\u1cd0-\u1ce8\u1ced\u1cf4\u1cf8\u1cf9\u1dc0-\u1dff\u2000-\u200f\u202a-\u202f\u205f-\u206f\u20d0-\u20ff\u2800"
    "\u3000\u302a-\u302d\u3099\u309a\u3164\ud800-\udfff\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\uffa0\ufff0-\ufffc"
    "\U000101fd\U000102e0\U000110bd\U000110cd\U0001133b\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001cf00-\U0001cf46\U0001d167-\U0001d169\U0001d173-\U0001d17a\U0001d17b-\U0001d182\U0001d185-\U0001d18b"
    "\U0001d1aa-\U0001d1ad\U000e0000-\U000e0fff"
)
UNSEEN = f"[{_UNSEEN}]"
"""One character that is not seen and breaks no line, for a regular expression."""
_SPACE = f"{UNSEEN}*"
WORD_END = r"(?![^\W_\u115f\u1160\u3164\uffa0])"
"""Where a word of a pattern ends; fillers are letters to a regular expression, and are not seen."""
_COLON = "[:\uff1a\ufe55\ufe13\u02d0\ua789\u2236]"


class LineHeads:
    """The heads of one kind of list.

    Args:
        words: Words that are heads with a colon behind them, in any case.
        pattern: Instead of words a regular expression; a space in it stands for characters not seen. The group that
            matches is what has to be untrusted, and is broken behind its first character.
        sign: A character that every head has.
        lists: The items of the context that such heads begin.
        per_item: How many heads one item has.
    """

    __slots__ = ("_flags", "_form", "_per_item", "_sign", "lists")

    def __init__(self, *words: str, pattern: str = "", sign: str = "", lists: str = "", per_item: int = 1) -> None:
        self._sign = sign
        self.lists = lists
        self._per_item = per_item
        form = pattern.replace(" ", _SPACE) or f"((?:{'|'.join(words)}){_SPACE}{_COLON})"
        self._form, self._flags = f"{_SPACE}{form}", re.IGNORECASE if words else re.NOFLAG

    @property
    def _begins(self) -> Callable[[str], re.Match[str] | None]:
        return _matcher(self._form, self._flags)

    def count(self, text: str) -> int:
        """Return how many heads there are in `text`."""
        return sum(map(bool, map(self._begins, text.splitlines())))

    def begin_any(self, lines: Iterable[str]) -> bool:
        """Whether one of these lines begins with a head."""
        return any(map(self._begins, lines))

    def broken(self, text: str) -> str:
        """Return untrusted text with every head in it broken."""
        if not self.begin_any(text.splitlines()):
            return text
        return insert_breaks(text, [start + 1 for start, _ in self._places(text)])

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where each head starts and ends."""
        before, begins = 0, self._begins
        for line in text.splitlines(keepends=True):
            found = begins(line)
            if found is not None:
                begin, end = found.span(found.lastindex or 0)
                yield before + begin, before + end
            before += len(line)

    def broken_in(self, segments: list[Segment]) -> list[Segment]:
        """Return the segments with every head broken that holds an untrusted character; media are their alt text."""
        texts = [segment.text if segment.media is None else segment.media.alt for segment in segments]
        text = "".join(texts)
        untrusted = bytearray(len(text))
        start = 0
        for segment, own in zip(segments, texts, strict=True):
            if segment.trust == "untrusted":
                untrusted[start : start + len(own)] = b"\1" * len(own)
            start += len(own)
        cuts = [head + 1 for head, end in self._places(text) if any(untrusted[head:end])]
        return broken_at(segments, texts, cuts) if cuts else segments

    def _signs_more_than(self, number: int, text: str) -> bool:
        """Whether the sign is in `text` more often than that; `str.count` looks at each character by itself."""
        find, sign, at = text.find, self._sign, -1
        for _ in range(number + 1):
            at = find(sign, at + 1)
            if at < 0:
                return False
        return True

    def without_forged(self, rendered: Rendered, items: Sequence[Any] | None) -> Rendered:
        """Return the rendering of a list with its forged heads broken.

        Where it is known to show `items` and nothing else, one look is mostly enough.
        """
        text = rendered.text
        if items is not None:
            if self._sign and not self._signs_more_than(len(items), text):
                return rendered
            if _are_trusted(items):
                return rendered
        lines = text.splitlines()
        if items is not None and len(lines) == len(items):
            return rendered
        found = sum(map(bool, map(self._begins, lines)))
        if not found or (items is not None and found == len(items) * self._per_item):
            return rendered
        segments = list(rendered.segments())
        made = self.broken_in(segments)
        return rendered if made is segments else FromSegments(made)


def _are_trusted(items: Sequence[object]) -> bool:
    for item in items:  # noqa: SIM110 (a call less for each of them)
        if getattr(item, "trust", "") != "trusted":
            return False
    return True


@lru_cache(maxsize=64)
def _matcher(form: str, flags: re.RegexFlag) -> Callable[[str], re.Match[str] | None]:
    """Return what matches the start of a line; compiled when it is first used, as that takes a millisecond each."""
    return re.compile(form, flags).match


MESSAGE = LineHeads("system", "user", "assistant", "tool")
"""The role in front of a message."""
CALL = LineHeads(pattern=rf"\[ ((?i:calls){WORD_END})")
"""What stands in front of a tool call of the assistant."""
