"""`Rendered`: text, media, and the origin of every character."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from agentkit_prompts.context.frozen import DerivedCache
from agentkit_prompts.context.parts import MARKER, MEDIA_OPENING, Media, neutralise_markers
from agentkit_prompts.context.prompt_context import Trust
from agentkit_prompts.context.short_repr import short_text
from agentkit_prompts.templates.spans import Segment, Span, tile, with_broken_openings
from agentkit_prompts.tokens.counter import TokenCounter, media_tokens


class Rendered(DerivedCache):
    """Text of one prompt or of joined prompts, and the origin of each character. Read-only.

    Attributes:
        text: The text, with a marker `<|media:KIND:ID|>` for each use of a media part.
        media: The media parts in the order of their markers; a part that is used twice is listed twice.
    """

    __slots__ = ("_segments", "media", "text")

    text: str
    media: tuple[Media, ...]

    def __init__(self, text: str, media: tuple[Media, ...], segments: Sequence[Segment] | None = None) -> None:
        self.text = text
        self.media = media
        self._segments = segments
        # More openings than media parts: a value contains an opening, or neighbouring values form an opening together.
        if "<" in text and MEDIA_OPENING in text and text.count(MEDIA_OPENING) != len(media):
            self._segments = with_broken_openings(self.segments())
            self.text = "".join([segment.text for segment in self._segments])

    @staticmethod
    def from_text(text: str, *, pointer: str = "", trust: Trust = "trusted") -> Rendered:
        """Create a rendering of text with one origin; openings of media markers in the text are broken."""
        if "<" in text:
            text = neutralise_markers(text)
        return Rendered(text, (), (Segment(text, pointer, trust),) if text else ())

    @staticmethod
    def from_segments(segments: Sequence[Segment]) -> Rendered:
        """Create a rendering of segments."""
        segments = [segment for segment in segments if segment.text]
        media = tuple([segment.media for segment in segments if segment.media is not None])
        return Rendered("".join([segment.text for segment in segments]), media, segments)

    def _make_segments(self) -> Iterable[Segment]:
        """Return the segments, which cover the text exactly. Called once, when the segments are first used."""
        return ()

    def segments(self, prompt: str = "") -> Sequence[Segment]:
        """Return the segments of the text; `prompt` is a path that is put before the prompt paths of the segments."""
        if self._segments is None:
            self._segments = [segment for segment in self._make_segments() if segment.text]
        if not prompt:
            return self._segments
        return [segment.below(prompt) for segment in self._segments]

    def spans(self, prompt: str = "") -> tuple[Span, ...]:
        """Return the spans of the text; `prompt` as for `segments`."""
        return tuple(tile(self.segments(prompt)))

    @property
    def plain(self) -> str:
        """The text, with each marker replaced by the alt text of its part, `[KIND: NAME]`."""
        if not self.media:
            return self.text
        alts = iter(self.media)
        return MARKER.sub(lambda _: next(alts).alt, self.text)

    @property
    def trust(self) -> Trust:
        """`untrusted` if a segment is untrusted, else `trusted`."""
        if any(segment.trust == "untrusted" for segment in self.segments()):
            return "untrusted"
        return "trusted"

    def is_known_to_be_trusted(self) -> bool:
        """True if all text is trusted and this is known without computing the segments: a fast test."""
        return self._segments is not None and self.trust == "trusted"

    def tokens(self, counter: TokenCounter) -> int:
        """Return the number of tokens, including media; the result for the last counter is cached."""
        return self.derive(count_tokens, counter)

    def map(self, change: Callable[[str], str]) -> Rendered:
        """Return the rendering with `change` applied to the text of each segment; media are unchanged."""
        return Rendered.from_segments([_changed(segment, change) for segment in self.segments()])

    def __reduce__(self) -> tuple[Any, ...]:
        # The values from which the segments are computed can be any objects of the developer.
        return Rendered.from_segments, (list(self.segments()),)

    def __str__(self) -> str:
        """Return the text, with the alt text of media."""
        return self.plain

    def __repr__(self) -> str:
        return f"Rendered({short_text(self.plain)})"


class Joined(Rendered):
    """Joined renderings between two texts of a template.

    Args:
        children: The renderings.
        separator: Text between neighbouring children.
        before: Text before the first child.
        after: Text after the last child.
        step: Name in the prompt path of each child, such as `wrapped_prompts`; empty if the path has no such step.
    """

    __slots__ = ("_after", "_before", "_children", "_separator", "_step")

    def __init__(
        self, children: Sequence[Rendered], separator: str = "", before: str = "", after: str = "", *, step: str = ""
    ) -> None:
        self._children = children
        self._separator = separator
        self._before = before
        self._after = after
        self._step = step
        media: tuple[Media, ...] = ()
        for child in children:
            if child.media:
                media += child.media
        text = separator.join([child.text for child in children])
        super().__init__(f"{before}{text}{after}", media)

    def _make_segments(self) -> Iterator[Segment]:
        yield Segment(self._before)
        for number, child in enumerate(self._children):
            if number:
                yield Segment(self._separator)
            yield from child.segments(f"{self._step}[{number}]" if self._step else "")
        yield Segment(self._after)


def count_tokens(rendered: Rendered, counter: TokenCounter) -> int:
    """Return the number of tokens of a rendering, including media."""
    if not rendered.media:
        return counter.count(rendered.text)
    return counter.count(MARKER.sub("", rendered.text)) + media_tokens(rendered.media)


def _changed(segment: Segment, change: Callable[[str], str]) -> Segment:
    if segment.media is not None:
        return segment
    return segment._replace(text=change(segment.text))
