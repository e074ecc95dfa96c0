"""Spans: where each run of characters came from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from agentkit_prompts.context.parts import MEDIA_OPENING, Media
from agentkit_prompts.context.prompt_context import Trust

__all__ = ["BREAK", "Segment", "Span", "broken_at", "defused", "insert_breaks", "tile"]

BREAK = "\u200b"
"""Zero-width space: what stands inside a marker or token that must not be one."""


class Span(NamedTuple):
    """A run of characters with one origin. The spans of a message tile its text exactly."""

    start: int
    """First character, counted from 0 in the text of the message."""
    end: int
    """One past the last character."""
    prompt: str
    """Path of the prompt that put it there, such as `system[0].wrapped_prompts[1]`."""
    line: int | None
    """Line of the template, counted from 1."""
    pointer: str
    """Where in the context it comes from, such as `documents[3].text`; empty for text of the template itself."""
    trust: Trust
    """`trusted` for what the developer wrote, `untrusted` for what came from a user, a document or a tool."""
    message: int = 0
    """Index of the message in the composition."""


class Segment(NamedTuple):
    """A span before its offsets are known."""

    text: str
    prompt: str
    line: int | None
    pointer: str
    trust: Trust
    media: Media | None = None
    atomic: bool = False
    """Whether it must be kept or dropped as a whole."""


def tile(segments: Iterable[Segment], message: int = 0) -> Iterator[Span]:
    """Give segments their offsets; empty ones vanish."""
    start = 0
    for segment in segments:
        if segment.text:
            end = start + len(segment.text)
            yield Span(start, end, segment.prompt, segment.line, segment.pointer, segment.trust, message)
            start = end


def defused(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the segments with every marker opening broken that no media part stands behind.

    A value may hold one, and neighbouring values may form one together.
    """
    text = "".join([segment.text for segment in segments])
    if text.count(MEDIA_OPENING) == sum(1 for segment in segments if segment.media is not None):
        return segments
    starts: list[int] = []
    offset = 0
    for segment in segments:
        starts.append(offset)
        offset += len(segment.text)
    real = {start for start, segment in zip(starts, segments, strict=True) if segment.media is not None}
    cuts: list[int] = []
    at = text.find(MEDIA_OPENING)
    while at >= 0:
        if at not in real:
            cuts.append(at + 1)
        at = text.find(MEDIA_OPENING, at + 1)
    return broken_at(segments, [segment.text for segment in segments], cuts)


def broken_at(segments: Sequence[Segment], texts: Sequence[str], cuts: Sequence[int]) -> list[Segment]:
    """Return the segments with a zero-width space at each of the cuts, ascending offsets of their texts together.

    Media stay as they are; `texts` has what each segment counts as.
    """
    made: list[Segment] = []
    start = 0
    for segment, text in zip(segments, texts, strict=True):
        first, last = bisect_right(cuts, start), bisect_right(cuts, start + len(text))
        here = [cut - start for cut in cuts[first:last]] if segment.media is None else []
        made.append(segment._replace(text=insert_breaks(text, here)) if here else segment)
        start += len(text)
    return made


def insert_breaks(text: str, offsets: Iterable[int]) -> str:
    """Return `text` with a zero-width space at each of the offsets."""
    return BREAK.join([text[start:end] for start, end in pairwise([0, *sorted(set(offsets)), len(text)])])
