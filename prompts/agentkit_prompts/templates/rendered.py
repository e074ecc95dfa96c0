"""What rendering a prompt gives: text, media, and where every character came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from agentkit_prompts.context.frozen import FrozenDict
from agentkit_prompts.context.parts import MARKER, Media, neutralise_markers
from agentkit_prompts.context.prompt_context import Trust
from agentkit_prompts.templates.engine import Program, RenderedText
from agentkit_prompts.templates.origins import Around, FromTemplate, Join, Origin, Plain, Segments
from agentkit_prompts.templates.spans import MEDIA_OPENING, Segment, Span, defused, tile
from agentkit_prompts.tokens.counter import TokenCounter, media_tokens

__all__ = ["ELLIPSIS", "Rendered"]

T = TypeVar("T")

ELLIPSIS = "\u2026"
"""Stands where text was cut."""

_SPACE = re.compile(r"\s+")
_LONGEST_WORD = 80


class Rendered:
    """The rendering of one prompt, or of several joined.

    Attributes:
        text: The text, one marker `<|media:KIND:ID|>` per use of a media part.
        media: The media parts in the order of their markers; a part used twice is here twice.
    """

    __slots__ = ("_count", "_derived", "_origin", "media", "roleless", "text", "wire")

    text: str
    media: tuple[Media, ...]
    _origin: Origin
    _count: tuple[TokenCounter, int] | None
    roleless: str | None
    """The plain text in which untrusted text forms no role, once a target has asked for it."""
    _derived: tuple[Callable[[Rendered], Any], Any] | None
    wire: FrozenDict | None
    """The message a target made of it last, kept for the next turn."""

    def __init__(self, text: str, media: tuple[Media, ...], origin: Origin) -> None:
        self.text = text
        self.media = media
        self._origin = origin
        self._count = None
        self.wire = None
        self.roleless = self._derived = None

    @classmethod
    def from_text(cls, text: str, *, pointer: str = "", trust: Trust = "trusted") -> Rendered:
        """Make a rendering of text from one origin; what looks like a media marker in it is broken."""
        if MEDIA_OPENING in text:
            text = neutralise_markers(text)
        return cls(text, (), Plain(text, pointer, trust))

    @classmethod
    def from_program(
        cls, program: Program, values: Mapping[str, Any], prefixes: Mapping[str, str] | None = None
    ) -> Rendered:
        """Run `program` over `values`; `prefixes` says where in the context a value of another name lives."""
        literal = program.literal
        if literal is not None:
            return cls(literal, (), Plain(literal, "", "trusted"))
        trace = program.trace(values)
        origin = FromTemplate(program, trace, values, prefixes)
        text = trace.text
        if trace.parts or ("<" in text and MEDIA_OPENING in text):  # looking for one character takes a tenth
            return cls.from_segments(list(origin.segments("")))
        return cls(text, (), origin)

    @classmethod
    def around(cls, before: str, child: Rendered, after: str, name: str = "") -> Rendered:
        """Put text of the template around a rendering, the rendering of a child when it has a name."""
        text = before + child.text + after
        origin = Around(before, child, after, name)
        if MEDIA_OPENING in text and text.count(MEDIA_OPENING) != len(child.media):
            return cls.from_segments(list(origin.segments("")))
        return cls(text, child.media, origin)

    @classmethod
    def join(cls, separator: str, children: Sequence[tuple[str, Rendered]], label: str = "") -> Rendered:
        """Join named renderings; the separators belong to `label`."""
        if len(children) == 1:
            name, child = children[0]
            return cls(child.text, child.media, Join(separator, children, label)) if name else child
        text = separator.join([child.text for _, child in children])
        media: tuple[Media, ...] = ()
        for _, child in children:
            if child.media:
                media += child.media
        # A marker holds no line break: across one, none can form.
        if "\n" not in separator and text.count(MEDIA_OPENING) != len(media):
            return cls.from_segments(list(Join(separator, children, label).segments("")))
        return cls(text, media, Join(separator, children, label))

    @property
    def as_wrapped(self) -> RenderedText:
        """The text as a template value that remembers where it came from."""
        return RenderedText(self.text, self)

    @property
    def plain(self) -> str:
        """The text with each marker replaced by the part's alt text, `[KIND: NAME]`."""
        if not self.media:
            return self.text
        alts = iter(self.media)
        return MARKER.sub(lambda _: next(alts).alt, self.text)

    def segments(self, prompt: str = "") -> Iterator[Segment]:
        """Yield the text in order, cut where its origin changes."""
        return self._origin.segments(prompt)

    def spans(self, prompt: str = "") -> tuple[Span, ...]:
        """Return the spans of the text."""
        return tuple(tile(self.segments(prompt)))

    @property
    def trust(self) -> Trust:
        """The lowest trust in it."""
        return "untrusted" if any(part.trust == "untrusted" for part in self.segments() if part.text) else "trusted"

    @property
    def is_vouched_for(self) -> bool:
        """Whether it is known at once, without looking at the spans, that all of it is trusted."""
        return self._origin.is_vouched_for

    def derive(self, function: Callable[[Rendered], T]) -> T:
        """Return `function` of this rendering; the value of the function that was asked for last is kept."""
        known = self._derived
        if known is not None and known[0] == function:
            return cast("T", known[1])
        value = function(self)
        self._derived = (function, value)
        return value

    def tokens(self, counter: TokenCounter) -> int:
        """Return what it costs, media included; counted once per counter."""
        known = self._count
        if known is not None and known[0] is counter:
            return known[1]
        tokens = counter.count(self.text)
        if self.media:
            tokens = counter.count(MARKER.sub("", self.text)) + media_tokens(self.media)
        self._count = (counter, tokens)
        return tokens

    def cut_points(self, most: int) -> list[int]:
        """Return about `most` ascending offsets, the end last, at which the text may be cut: between words where
        there are any, never inside a media marker or an atomic passage.
        """
        text, size = self.text, len(self.text)
        points: list[int] = []
        kept_whole = [(span.start, span.end) for span in self._whole_spans()]
        # Evenly spaced, and closer and closer towards both ends, so that little room still shows something.
        halves = [size >> power for power in range(8, size.bit_length() - 4)]
        wished = {size * number // most for number in range(1, most)} | {*halves} | {size - half for half in halves}
        for point in sorted(wished):
            space = _SPACE.search(text, point, min(size, point + _LONGEST_WORD))
            point = space.end() if space else point
            for start, end in kept_whole:
                if start < point < end:
                    point = end
                    break
            if point > (points[-1] if points else 0):
                points.append(point)
        if not points or points[-1] != size:
            points.append(size)
        return points

    def _whole_spans(self) -> Iterator[Span]:
        segments = list(self.segments())
        for segment, span in zip((part for part in segments if part.text), tile(segments), strict=True):
            if segment.media is not None or segment.atomic:
                yield span

    def cut(self, start: int, end: int) -> Rendered:
        """Return the rendering without the characters from `start` to `end`, an ellipsis in their place."""
        kept: list[Segment] = []
        offset = 0
        placed = False
        for segment in self.segments():
            begin, stop = offset, offset + len(segment.text)
            offset = stop
            if begin < start:
                kept.append(segment._replace(text=segment.text[: start - begin]))
            if not placed and stop > start:
                kept.append(Segment(ELLIPSIS, segment.prompt, None, "", "trusted"))
                placed = True
            if stop > end and segment.text:
                kept.append(segment._replace(text=segment.text[max(0, end - begin) :]))
        return Rendered.from_segments(kept)

    def replace(self, old: str, new: str) -> Rendered:
        """Return the rendering with `old` replaced in its text, also where two values form it together."""
        return self if old not in self.text else self.map(lambda text: text.replace(old, new), old)

    def map(self, change: Callable[[str], str], over: str = "") -> Rendered:
        """Return the rendering with `change` applied to what each span says; media stay.

        When `over` is still in the text after that, neighbouring spans form it together: they are changed as one.
        """
        changed = [
            part if part.media is not None else part._replace(text=change(part.text)) for part in self.segments()
        ]
        mapped = Rendered.from_segments(changed)
        if not over or over not in mapped.text:
            return mapped
        merged: list[Segment] = []
        for part in changed:
            if merged and part.media is None and merged[-1].media is None:
                trust: Trust = "untrusted" if "untrusted" in (merged[-1].trust, part.trust) else "trusted"
                merged[-1] = merged[-1]._replace(text=merged[-1].text + part.text, trust=trust, pointer="")
            else:
                merged.append(part)
        return Rendered.from_segments(
            [part if part.media is not None else part._replace(text=change(part.text)) for part in merged]
        )

    @classmethod
    def from_segments(cls, segments: Sequence[Segment]) -> Rendered:
        """Make a rendering of segments; what looks like a media marker without a media part is broken."""
        segments = defused(segments)
        text = "".join([segment.text for segment in segments])
        return cls(text, tuple(part.media for part in segments if part.media is not None), Segments(segments))

    def __str__(self) -> str:
        return self.plain

    def __repr__(self) -> str:
        return f"Rendered({len(self.text)} characters, {len(self.media)} media)"
