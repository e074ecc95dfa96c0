"""Trace: the result of one rendering of a prompt template, which is its text and the origin of each part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentkit_prompts.context.parts import MEDIA_OPENING, neutralise_markers
from agentkit_prompts.templates.sandbox.meter import join_output
from agentkit_prompts.templates.sandbox.operation_errors import TemplateOperationError
from agentkit_prompts.templates.sandbox.values import Composed, MediaText, RenderedText, Site, Trusted


class Mark(NamedTuple):
    """Origin of the texts of one output statement."""

    sites: tuple[int | None, ...]
    """Index of the site of each text; None for text of the template itself."""
    indices: tuple[int, ...]
    """Index of the round of each enclosing loop, outermost first."""


class Piece(NamedTuple):
    """One part of the text, with its origin."""

    text: str
    """The text: a `str`, `RenderedText`, `Trusted`, `Composed` or `MediaText`."""
    site: Site | None = None
    """The `{{ }}` that printed the text; None for text of the template itself."""
    indices: tuple[int, ...] = ()
    """Indices as in `Mark`."""

    @property
    def pointer(self) -> str:
        """Path of the value in the context; empty if the expression is more than a path."""
        if self.site is not None:
            return self.site.pointer.format(*self.indices)
        return ""


class Trace:
    """Text of one rendering, and the origin of its parts. Openings of media markers in values are broken.

    Attributes:
        sites: Every `{{ }}` of the template.
        texts: Parts of the text in order.
        marks: Origins of the texts, in order: tuples with the fields of `Mark`. Generated code creates plain tuples,
            because a named tuple takes five times as long.
        has_parts: True if the text contains media or rendered text.
        text: The whole text, with a marker for each media part.

    Raises:
        TemplateOperationError: The text is longer than `max_chars`.
    """

    __slots__ = ("has_parts", "marks", "sites", "text", "texts")

    def __init__(
        self,
        sites: tuple[Site, ...],
        texts: list[str],
        marks: Sequence[tuple[tuple[int | None, ...], tuple[int, ...]]],
        max_chars: int,
        has_parts: bool = False,
    ) -> None:
        self.sites = sites
        self.texts = texts
        self.marks = marks
        self.has_parts = has_parts
        try:
            self.text = join_output(texts, max_chars)
        except TemplateOperationError as error:
            error.line = self._line_of_limit(max_chars)
            raise
        if "<" in self.text and MEDIA_OPENING in self.text:
            self.texts = [_without_false_markers(piece) for piece in self.pieces()]
            self.text = "".join(self.texts)

    def _line_of_limit(self, max_chars: int) -> int | None:
        """Return the line of the expression at which the output exceeds its limit; None if only template text does."""
        length = 0
        line = None
        for piece in self.pieces():
            length += len(piece.text)
            if piece.site is not None:
                line = piece.site.line
            if length > max_chars and line is not None:
                break
        return line

    def pieces(self) -> Iterator[Piece]:
        """Yield the text, split at every `{{ }}`."""
        texts = iter(self.texts)
        for sites, indices in self.marks:
            for site in sites:
                yield Piece(next(texts), None if site is None else self.sites[site], indices)


def _without_false_markers(piece: Piece) -> str:
    """Return the text of a piece; openings of media markers are broken unless they are real markers."""
    text, site, _ = piece
    kind = type(text)
    if kind is Composed:
        return str.__str__(text)
    # Text of the template was checked at compilation, and rendered text at its rendering.
    if site is None or site.nested or kind is RenderedText or kind is MediaText or MEDIA_OPENING not in text:
        return text
    if kind is Trusted:
        return Trusted(neutralise_markers(text))
    return neutralise_markers(text)
