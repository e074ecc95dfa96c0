"""`Segment` and `Span`: text with its origin."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from agentkit_prompts.context.parts import MEDIA_OPENING, Media
from agentkit_prompts.context.prompt_context import Trust

BREAK = "\u200b"
"""Zero-width space, which breaks a marker or token in untrusted text."""


class Segment(NamedTuple):
    """Text with one origin."""

    text: str
    pointer: str = ""
    """Path of the value in the context, such as `documents[3].text`; empty for text of the template itself."""
    trust: Trust = "trusted"
    """`trusted` for text of the developer, `untrusted` for text of a user, a document or a tool."""
    prompt: str = ""
    """Path of the prompt that rendered the text, such as `system[0].wrapped_prompts[1]`."""
    line: int | None = None
    """Line of the template that printed the text, counted from 1; None if unknown."""
    media: Media | None = None
    """The media part whose marker is the text; None for other text."""
    atomic: bool = False
    """True if a budget must not cut inside the text."""

    @property
    def plain(self) -> str:
        """The text; the marker of a media part is replaced by its alt text."""
        if self.media is not None:
            return self.media.alt
        return self.text

    def below(self, prompt: str) -> Segment:
        """Return the segment with `prompt` prefixed to its prompt path."""
        path = ".".join(filter(None, (prompt, self.prompt)))
        # `_replace` takes three times as long, and a long prompt has thousands of segments.
        return Segment(self.text, self.pointer, self.trust, path, self.line, self.media, self.atomic)


class Span(NamedTuple):
    """A segment with its offsets in a message. The spans of a message cover its text exactly."""

    start: int
    """First character, counted from 0 in the text of the message."""
    end: int
    """Position after the last character."""
    segment: Segment
    message: int = 0
    """Index of the message in the composition."""

    @property
    def text(self) -> str:
        """The characters."""
        return self.segment.text

    @property
    def pointer(self) -> str:
        """Path of the value in the context; empty for text of the template itself."""
        return self.segment.pointer

    @property
    def trust(self) -> Trust:
        """`trusted` for text of the developer, `untrusted` for text of a user, a document or a tool."""
        return self.segment.trust

    @property
    def prompt(self) -> str:
        """Path of the prompt that rendered the text."""
        return self.segment.prompt

    @property
    def line(self) -> int | None:
        """Line of the template that printed the text, counted from 1; None if unknown."""
        return self.segment.line


def tile(segments: Iterable[Segment], message: int = 0) -> Iterator[Span]:
    """Yield the spans of neighbouring segments, without empty segments; `message` is the index of their message."""
    start = 0
    for segment in segments:
        if segment.text:
            end = start + len(segment.text)
            yield Span(start, end, segment, message)
            start = end


def with_broken_openings(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the segments with all openings of media markers broken, except in the markers of media parts."""
    # The joined text is searched, because neighbouring segments can form an opening together.
    text = "".join([segment.text for segment in segments])
    if text.count(MEDIA_OPENING) == sum(1 for segment in segments if segment.media is not None):
        return segments
    markers = {span.start for span in tile(segments) if span.segment.media is not None}
    cuts = [start + 1 for start in _openings(text) if start not in markers]
    return broken_at(segments, [segment.text for segment in segments], cuts)


def _openings(text: str) -> Iterator[int]:
    """Yield the offsets of openings of media markers, including overlapping openings."""
    start = text.find(MEDIA_OPENING)
    while start >= 0:
        yield start
        start = text.find(MEDIA_OPENING, start + 1)


def broken_at(segments: Sequence[Segment], texts: Sequence[str], cuts: Sequence[int]) -> list[Segment]:
    """Return the segments with a zero-width space at each cut; media are unchanged.

    Args:
        segments: The segments.
        texts: Text of each segment, such as the alt text of media.
        cuts: Ascending offsets in the joined `texts`.
    """
    result: list[Segment] = []
    start = 0
    for segment, text in zip(segments, texts, strict=True):
        # Bisection finds the cuts of this segment; a scan of all cuts for each segment could take minutes.
        first, last = bisect_right(cuts, start), bisect_right(cuts, start + len(text))
        if first < last and segment.media is None:
            offsets = [cut - start for cut in cuts[first:last]]
            segment = segment._replace(text=insert_breaks(text, offsets))
        result.append(segment)
        start += len(text)
    return result


def insert_breaks(text: str, offsets: Iterable[int]) -> str:
    """Return `text` with a zero-width space at each of the offsets."""
    return BREAK.join([text[start:end] for start, end in pairwise([0, *sorted(set(offsets)), len(text)])])
