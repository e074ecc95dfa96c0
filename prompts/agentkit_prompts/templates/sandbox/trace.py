"""Result of one rendering of a prompt template: the text, and the origin of each part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from agentkit_prompts.context.parts import MEDIA_OPENING, Media, neutralise_markers
from agentkit_prompts.templates.sandbox.finalise import is_parts, number_text, parts_of, text
from agentkit_prompts.templates.sandbox.meter import Meter
from agentkit_prompts.templates.sandbox.values import Composed, MediaText, RenderedText, Site, Trusted

__all__ = ["Mark", "Piece", "Trace"]


_PLAIN = frozenset({str, int, float, bool})


class Mark(NamedTuple):
    """Origin of the texts of one output statement."""

    sites: tuple[int | None, ...]
    """Number of the site of each text; None for text of the template itself."""
    indices: tuple[int, ...]
    """Index of the round of each loop around it, outermost first."""


class Piece(NamedTuple):
    """One part of the text, with its origin."""

    text: str
    """A plain text, or `RenderedText`, `Trusted` or `MediaText`."""
    site: Site | None = None
    """None for text of the template itself."""
    indices: tuple[int, ...] = ()

    @property
    def pointer(self) -> str:
        """Path of the value in the context; empty if the expression is more than a path."""
        return self.site.pointer.format(*self.indices) if self.site is not None else ""


class Trace:
    """Text of one rendering, and the origin of its parts.

    Attributes:
        texts: Parts of the text in order.
        marks: Plain tuples in the form of `Mark`, which together have a site for each of the texts. Generated code
            appends them, and a plain tuple takes a fifth of the time of a named one.
        sites: Every `{{ }}` of the template.
        text: The whole text, one marker for each media part.
        has_parts: True if media or rendered text are in it.
    """

    __slots__ = ("has_parts", "marks", "meter", "sites", "text", "texts")

    text: str

    def __init__(self, meter: Meter, sites: tuple[Site, ...]) -> None:
        self.meter = meter
        self.sites = sites
        self.texts: list[str] = []
        self.marks: list[tuple[tuple[int | None, ...], tuple[int, ...]]] = []
        self.has_parts = False

    def add_literal(self, text: str) -> None:
        """Set the text of a template without expressions."""
        self.text = text
        if text:
            self.texts.append(text)
            self.marks.append(((None,), ()))

    def emit(self, mark: tuple[tuple[int | None, ...], tuple[int, ...]], values: Sequence[Any]) -> None:
        """Append the values of an output statement that are not all plain text."""
        texts = self.texts
        if _PLAIN.issuperset(map(type, values)):
            texts += [value if type(value) is str else number_text(value) for value in values]
            self.marks.append(mark)
            return
        sites: list[int | None] = []
        for site, value in zip(mark[0], values, strict=True):
            parts = self._parts(value)
            texts += parts
            sites += [site] * len(parts)
        self.marks.append((tuple(sites), mark[1]))

    def _parts(self, value: Any) -> list[str]:
        kind = type(value)
        if kind is str or kind is Trusted or kind is Composed:
            return [value]
        if kind is RenderedText:
            self.has_parts = True
            return [value]
        if not (isinstance(value, Media) or hasattr(kind, "__prompt__") or is_parts(value)):
            return [text(self.meter, value)]
        self.has_parts = True
        return [MediaText(part) if isinstance(part, Media) else part for part in parts_of(self.meter, value)]

    def finish(self) -> None:
        """Join the text, check its length, and break markers that are only text."""
        # The same long text can be printed many times: together they can be longer than the memory.
        length = sum(map(len, self.texts))
        if length > self.meter.limits.output_chars:
            self.meter.too_long(length, self._line_of_limit())
        self.text = "".join(self.texts)
        if "<" in self.text and MEDIA_OPENING in self.text:
            self._break_markers()

    def _line_of_limit(self) -> int | None:
        """Return the line of the expression whose text passes the limit of the output."""
        length = 0
        line = None
        for piece in self.pieces():
            length += len(piece.text)
            if piece.site is not None:
                line = piece.site.line
            if length > self.meter.limits.output_chars and line is not None:
                break
        return line

    def pieces(self) -> Iterator[Piece]:
        """Yield the text, cut at every `{{ }}`."""
        texts = iter(self.texts)
        for sites, indices in self.marks:
            for site in sites:
                yield Piece(next(texts), None if site is None else self.sites[site], indices)

    def _break_markers(self) -> None:
        """Break text that reads like a media marker."""
        texts: list[str] = []
        for shown, site, _ in self.pieces():
            kind = type(shown)
            if kind is Composed:
                shown = str.__str__(shown)
            elif site is None or site.nested or kind is RenderedText or kind is MediaText:
                pass
            elif MEDIA_OPENING in shown:
                shown = Trusted(neutralise_markers(shown)) if kind is Trusted else neutralise_markers(shown)
            texts.append(shown)
        self.texts = texts
        self.text = "".join(texts)
