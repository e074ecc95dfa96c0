"""What a run leaves behind: the text at once, and where each part of it came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from agentkit_prompts.context.parts import MEDIA_OPENING, Media, neutralise_markers
from agentkit_prompts.templates.operations.finalise import is_parts, number_text, parts_of, text
from agentkit_prompts.templates.operations.meter import DEFAULT, Limits, Meter
from agentkit_prompts.templates.operations.values import Composed, Piece, RenderedText, Site, Trusted

__all__ = ["LOOP", "ROUND", "Group", "Trace", "emit"]

Group: TypeAlias = tuple[str | int, ...]
"""What an output statement prints: literals as text, expressions as the number of their site."""

LOOP = "loop"
ROUND = "round"
"""Marks of where a loop and each of its rounds begin."""
_Index: TypeAlias = tuple[int, ...] | int | None
_PRESUMED_SMALL = 64
"""So many texts are joined before their length is looked at: adding up that of each text takes longer."""
_PLAIN = frozenset({str, int, bool, float})
_KEPT = (str, RenderedText, Trusted, Composed)


class Trace:
    """The result of one run.

    Attributes:
        text: The whole text, one marker for each media part.
        parts: Media and rendered text in it that are more than text, in order; empty almost always.
    """

    __slots__ = ("groups", "marks", "meter", "parts", "sites", "text", "texts")

    text: str
    parts: list[Media | RenderedText]

    def __init__(self, limits: Limits, groups: tuple[Group, ...], sites: tuple[Site, ...]) -> None:
        self.meter = Meter(limits)
        self.groups = groups
        self.sites = sites
        self.texts: list[str] = []
        self.marks: list[Any] = []
        """What is in `texts`: `~number` of a group outside of loops, `number` of one in the loop and round that `LOOP`
        and `ROUND` begin, (number, index or indices) of one in any other loop, or a list of pieces."""
        self.parts = []

    @classmethod
    def of_literal(cls, text: str) -> Trace:
        """Return the trace of a template without expressions."""
        trace = cls(DEFAULT, ((text,),), ())
        trace.text = text
        if text:
            trace.texts.append(text)
            trace.marks.append(~0)
        return trace

    def finish(self) -> None:
        """Join the text, check its length, and break markers that are only text."""
        texts, longest = self.texts, self.meter.limits.output_chars
        if len(texts) > _PRESUMED_SMALL:
            texts = list(self._parts(longest))
        self.text = joined = "".join(texts)
        if len(joined) > longest:
            self.meter.too_long(len(joined))
        if "<" in joined and MEDIA_OPENING in joined:
            self._neutralise()

    def _parts(self, left: int) -> Iterator[str]:
        """Yield many texts joined to a few, as long as they are not too long together."""
        for start in range(0, len(self.texts), _PRESUMED_SMALL):
            part = "".join(self.texts[start : start + _PRESUMED_SMALL])
            left -= len(part)
            if left < 0:
                self.meter.too_long(sum(map(len, self.texts)))
            yield part

    def pieces(self) -> list[Piece]:
        """Return the text cut at every `{{ }}`."""
        made: list[Piece] = []
        texts = self.texts
        at, round_ = 0, -1
        index: _Index
        for mark in self.marks:
            if type(mark) is list:
                made.extend(mark)
                at += len(mark)
                continue
            if type(mark) is str:
                round_ = -1 if mark == LOOP else round_ + 1
                continue
            if type(mark) is tuple:
                number, index = mark
            else:
                number, index = (mark, round_) if mark >= 0 else (~mark, None)
            for entry in self.groups[number]:
                made.append(entry if isinstance(entry, str) else (entry, index, texts[at]))
                at += 1
        return made

    def _neutralise(self) -> None:
        """Break what reads like a media marker but is only text."""
        pieces = self.pieces()
        texts: list[str] = []
        for at, (piece, shown) in enumerate(zip(pieces, self.texts, strict=True)):
            if type(piece) is not tuple or MEDIA_OPENING not in shown:
                texts.append(shown)
                continue
            site, index, value = piece
            kind = type(value)
            if kind is Composed:
                pieces[at] = (site, index, str.__str__(shown))
            elif kind is RenderedText or isinstance(value, Media) or self.sites[site].nested:
                pass
            else:
                shown = neutralise_markers(shown)
                pieces[at] = (site, index, Trusted(shown) if kind is Trusted else shown)
            texts.append(shown)
        self.texts = texts
        self.marks = [pieces]
        self.text = "".join(texts)


def emit(trace: Trace, number: int, index: _Index, values: tuple[Any, ...]) -> None:
    """Print a group some of whose values are not plain text yet."""
    meter = trace.meter
    meter.charge(30 + 20 * len(values))
    group = trace.groups[number]
    mark = ~number if index is None else (number, index)
    given = iter(values)
    if _PLAIN.issuperset(map(type, values)):
        for entry in group:
            if type(entry) is not str:
                value = next(given)
                entry = value if type(value) is str else number_text(meter, value)
            trace.texts.append(entry)
        trace.marks.append(mark)
        return
    texts: list[str] = []
    marks: list[Piece] = []
    plain = True
    for entry in group:
        if isinstance(entry, str):
            texts.append(entry)
            marks.append(entry)
            continue
        value = next(given)
        kind = type(value)
        if kind in _KEPT:
            texts.append(value)
            marks.append((entry, index, value))
            if kind is not str:
                plain = False
                if kind is RenderedText:
                    trace.parts.append(value)
        elif isinstance(value, Media) or hasattr(kind, "__prompt__") or is_parts(value):
            plain = False
            for part in parts_of(meter, value):
                if isinstance(part, Media):
                    trace.parts.append(part)
                    texts.append(part.marker)
                else:
                    if type(part) is RenderedText:
                        trace.parts.append(part)
                    texts.append(part)
                marks.append((entry, index, part))
        else:
            made = text(meter, value)
            texts.append(made)
            marks.append((entry, index, made))
    trace.texts.extend(texts)
    trace.marks.append(mark if plain else marks)
