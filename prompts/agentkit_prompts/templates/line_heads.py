"""Line heads: the texts, such as `user:` or `[1]`, with which a message or an item starts in plain text.

Untrusted text must not contain heads, because it could imitate another message or item. A head is at the start of a
line, also after invisible characters. If any character of a head is untrusted, a zero-width space after its first
character breaks it. Heads written with similar letters of other alphabets, such as Cyrillic, are not found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Segment, broken_at, insert_breaks
from agentkit_prompts.templates.traced_text import TracedText
from agentkit_prompts.templates.unseen_characters import UNSEEN, WORD_END

_SPACE = f"{UNSEEN}*+"
_COLONS = ":\uff1a\ufe55\ufe13\u02d0\ua789\u2236"


class LineHeads:
    """Heads of the items of one kind of list.

    Args:
        words: Words that are heads if a colon follows, in upper or lower case.
        pattern: Regular expression of other heads; a space in it matches invisible characters. Only the text of its
            group is tested and broken.
        sign: Character that all heads of `pattern` contain, for a fast test.
        per_item: Number of heads that the default template writes for each item.
    """

    def __init__(self, *words: str, pattern: str = "", sign: str = "", per_item: int = 1) -> None:
        self.per_item = per_item
        forms: list[str] = []
        self._signs = sign
        """Characters of which each head contains at least one; empty if unknown."""
        if words:
            forms.append(f"((?i:{'|'.join(words)}){_SPACE}[{_COLONS}])")
            self._signs += _COLONS
        if pattern:
            forms.append(pattern.replace(" ", _SPACE))
        self._ascii_signs = "".join(filter(str.isascii, self._signs))
        self._pattern = f"{_SPACE}(?:{'|'.join(forms)})"

    @cached_property
    def _match(self) -> Callable[[str], re.Match[str] | None]:
        """Function that matches a head at the start of a line. Compiled at its first use, because that takes 1 ms."""
        return re.compile(self._pattern).match

    def count(self, text: str) -> int:
        """Return the number of heads in `text`."""
        return sum(1 for _ in self._places(text))

    def is_in(self, text: str) -> bool:
        """True if a line of `text` starts with a head."""
        # Most texts contain none of the signs, so that their lines need not be read.
        signs = self._ascii_signs if text.isascii() else self._signs
        if self._signs and not any(map(text.__contains__, signs)):
            return False
        return any(map(self._match, text.splitlines()))

    def broken(self, text: str) -> str:
        """Return untrusted text with all its heads broken."""
        if not self.is_in(text):
            return text
        return insert_breaks(text, [start + 1 for start, _ in self._places(text)])

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each head, or of its group if the pattern has a group."""
        offset = 0
        for line in text.splitlines(keepends=True):
            match = self._match(line)
            if match is not None:
                start, end = match.span(match.lastindex or 0)
                yield offset + start, offset + end
            offset += len(line)

    def broken_in(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """Return the segments with all heads broken that have an untrusted character.

        A head can span several segments. For the search, media are replaced by their alt text.
        """
        texts = [segment.plain for segment in segments]
        text = "".join(texts)
        untrusted = bytearray(len(text))
        start = 0
        for segment, own in zip(segments, texts, strict=True):
            if segment.trust == "untrusted":
                untrusted[start : start + len(own)] = b"\1" * len(own)
            start += len(own)
        cuts = [head + 1 for head, end in self._places(text) if any(untrusted[head:end])]
        if not cuts:
            return segments
        return broken_at(segments, texts, cuts)

    def _fits(self, text: str, expected: int) -> bool:
        """True if a count of signs or, without a sign, of lines proves that a text has at most `expected` heads."""
        if not self._signs:
            return len([line for line in text.splitlines() if line]) <= expected
        count = 0
        for sign in self._signs:
            # `str.count` would search the whole text, which takes ten times as long if the text is long.
            position = text.find(sign)
            while position >= 0 and count <= expected:
                count += 1
                position = text.find(sign, position + 1)
        return count <= expected

    def without_forged(self, rendered: Rendered, expected: int | None = None) -> Rendered:
        """Return the rendering with its forged heads broken.

        `expected` is the number of heads that the template writes; None if unknown.
        """
        # Cheap tests first, because matching every line takes as long as the rendering.
        if expected is not None and self._fits(rendered.text, expected):
            return rendered
        if rendered.is_known_to_be_trusted() or not self.is_in(rendered.text):
            return rendered
        if isinstance(rendered, TracedText):
            # Only the origins of the heads are computed.
            places = [*self._places(rendered.text)]
            if len(places) == expected or not rendered.is_untrusted_in(places):
                return rendered
        segments = rendered.segments()
        broken = self.broken_in(segments)
        if broken is segments:
            return rendered
        return Rendered.from_segments(broken)


MESSAGE = LineHeads("system", "user", "assistant", "tool", pattern=rf"\[ ((?i:calls){WORD_END})", sign="[")
"""Head of a message, which is its role, and head of a tool call of the assistant."""
