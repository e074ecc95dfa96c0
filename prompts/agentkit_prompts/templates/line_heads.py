"""What begins a message or an item in plain text: the head of a line, which untrusted text must not write.

A head counts at the start of a line, also behind characters that are not seen. A head that holds an untrusted character
is broken by a zero-width space behind its first one. Letters that only look like those of a head, such as Cyrillic
ones, are not covered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from agentkit_prompts.templates.rendered import FromSegments, Rendered
from agentkit_prompts.templates.spans import Segment, broken_at, insert_breaks
from agentkit_prompts.templates.unseen_characters import UNSEEN, WORD_END

__all__ = ["CALL", "MESSAGE", "LineHeads"]

_SPACE = f"{UNSEEN}*"
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
