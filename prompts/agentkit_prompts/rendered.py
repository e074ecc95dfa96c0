"""What rendering a prompt gives: text, media, and where every character came from.

While a template runs only raw pieces are collected. Spans (offsets, lines, pointers, trust) are worked out from them
when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentkit_prompts.context import Trust
from agentkit_prompts.engine import Piece, Program, RenderedText, Trusted
from agentkit_prompts.errors import PromptError
from agentkit_prompts.parts import MARKER, Media

__all__ = ["Rendered", "Segment", "Span"]

_OPENING = "<|media:"
_TRUSTED_ROOTS = frozenset({"tools", "examples", "locale", "now", "extra"})


@dataclass(frozen=True, slots=True)
class Span:
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


class Rendered:
    """The rendering of one prompt, or of several joined.

    Attributes:
        text: The text, one marker `<|media:KIND:ID|>` per use of a media part.
        media: The media parts in the order of their markers; a part used twice is here twice.
    """

    __slots__ = ("_origin", "media", "text")

    text: str
    media: tuple[Media, ...]
    _origin: _Template | _Join | _Plain

    def __init__(self, text: str, media: tuple[Media, ...], origin: _Template | _Join | _Plain) -> None:
        self.text = text
        self.media = media
        self._origin = origin

    @classmethod
    def from_text(cls, text: str, *, pointer: str = "", trust: Trust = "trusted") -> Rendered:
        """Make a rendering of text from one origin."""
        return cls(text, (), _Plain(text, pointer, trust))

    @classmethod
    def from_program(
        cls, program: Program, values: Mapping[str, Any], prefixes: Mapping[str, str] | None = None
    ) -> Rendered:
        """Run `program` over `values`; `prefixes` says where in the context a value of another name lives."""
        literal = program.literal
        if literal is not None:
            return cls(literal, (), _Plain(literal, "", "trusted"))
        pieces = program.run(values)
        texts: list[str] = []
        media: list[Media] = []
        for piece in pieces:
            if type(piece) is str:
                texts.append(piece)
                continue
            value = piece[2]
            if type(value) is str:
                if _OPENING in value:
                    media.extend(_nested_media(value, values.get("wrapped_str")))
                texts.append(value)
            elif isinstance(value, Media):
                media.append(value)
                texts.append(value.marker)
            else:
                if type(value) is RenderedText:
                    media.extend(value.rendered.media)
                texts.append(value)
        text = "".join(texts)
        if text.count(_OPENING) != len(media):
            pieces, text = _defuse(pieces, texts, {part.id for part in media})
        return cls(text, tuple(media), _Template(program, pieces, values, prefixes))

    @classmethod
    def join(cls, separator: str, children: Sequence[tuple[str, Rendered]]) -> Rendered:
        """Join named renderings."""
        text = separator.join([child.text for _, child in children])
        media = tuple(part for _, child in children for part in child.media)
        if text.count(_OPENING) != len(media):
            raise PromptError(
                f"joining {', '.join(name for name, _ in children)} with {separator!r} would form a media marker; "
                "use a separator with a line break"
            )
        return cls(text, media, _Join(separator, children))

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

    def __str__(self) -> str:
        return self.plain

    def __repr__(self) -> str:
        return f"Rendered({len(self.text)} characters, {len(self.media)} media)"


def tile(segments: Iterable[Segment], message: int = 0) -> Iterator[Span]:
    """Give segments their offsets; empty ones vanish."""
    start = 0
    for segment in segments:
        if segment.text:
            end = start + len(segment.text)
            yield Span(start, end, segment.prompt, segment.line, segment.pointer, segment.trust, message)
            start = end


class _Plain:
    __slots__ = ("pointer", "text", "trust")

    def __init__(self, text: str, pointer: str, trust: Trust) -> None:
        self.text = text
        self.pointer = pointer
        self.trust: Trust = trust

    def segments(self, prompt: str) -> Iterator[Segment]:
        yield Segment(self.text, prompt, None, self.pointer, self.trust)


class _Join:
    __slots__ = ("children", "separator")

    def __init__(self, separator: str, children: Sequence[tuple[str, Rendered]]) -> None:
        self.separator = separator
        self.children = children

    def segments(self, prompt: str) -> Iterator[Segment]:
        for index, (name, child) in enumerate(self.children):
            if index and self.separator:
                yield Segment(self.separator, prompt, None, "", "trusted")
            yield from child.segments(f"{prompt}.{name}" if prompt else name)


class _Template:
    __slots__ = ("pieces", "prefixes", "program", "values")

    def __init__(
        self,
        program: Program,
        pieces: Sequence[Piece],
        values: Mapping[str, Any],
        prefixes: Mapping[str, str] | None,
    ) -> None:
        self.program = program
        self.pieces = pieces
        self.values = values
        self.prefixes = prefixes or {}

    def segments(self, prompt: str) -> Iterator[Segment]:
        sites = self.program.sites
        for piece in self.pieces:
            if type(piece) is str:
                yield Segment(piece, prompt, None, "", "trusted")
                continue
            number, index, value = piece
            if type(value) is RenderedText:
                yield from value.rendered.segments(prompt)
                continue
            site = sites[number]
            indices = index if type(index) is tuple else (index,)
            pointer = site.pointer.format(*indices) if site.pointer else ", ".join(site.roots)
            trust: Trust = "trusted" if type(value) is Trusted else self._trust(site.roots, site.pointer, indices)
            for root, prefix in self.prefixes.items():
                if pointer == root or pointer.startswith((root + ".", root + "[")):
                    pointer = prefix + pointer[len(root) :]
                    break
            if isinstance(value, Media):
                yield Segment(value.marker, prompt, site.line, pointer, "untrusted", value)
            else:
                yield Segment(str(value), prompt, site.line, pointer, trust)

    def _trust(self, roots: Iterable[str], pointer: str, indices: Sequence[Any]) -> Trust:
        """Return the lowest trust among what an expression reads."""
        for root in roots:
            value = self.values.get(root)
            if type(value) is RenderedText:
                if any(segment.trust == "untrusted" for segment in value.rendered.segments()):
                    return "untrusted"
            elif type(value) is Trusted:
                continue
            elif isinstance(value, tuple) and value and hasattr(value[0], "trust"):
                one = value[indices[0]] if pointer.startswith(root + "[{0}]") else None
                if any(item.trust == "untrusted" for item in ((one,) if one is not None else value)):
                    return "untrusted"
            elif root not in _TRUSTED_ROOTS:
                return "untrusted"
        return "trusted"


def _nested_media(text: str, wrapped: object) -> list[Media]:
    """Find the media of a wrapped rendering whose markers came through a filter such as `trim` unharmed."""
    known = {part.id: part for part in wrapped.rendered.media} if type(wrapped) is RenderedText else {}
    return [known[found[2]] for found in MARKER.finditer(text) if found[2] in known]


def _defuse(pieces: Sequence[Piece], texts: Sequence[str], known: set[str]) -> tuple[list[Piece], str]:
    """Break every marker opening that no media part stands behind: one that two neighbouring values form together."""
    real: set[int] = set()
    starts: list[int] = []
    offset = 0
    for piece, text in zip(pieces, texts, strict=True):
        starts.append(offset)
        if type(piece) is not str:
            real.update(offset + found.start() for found in MARKER.finditer(text) if found[2] in known)
        offset += len(text)
    joined = "".join(texts)
    cuts: list[int] = []
    at = joined.find(_OPENING)
    while at >= 0:
        if at not in real:
            cuts.append(at + 1)
        at = joined.find(_OPENING, at + 1)
    result: list[Piece] = []
    out: list[str] = []
    for piece, start, text in zip(pieces, starts, texts, strict=True):
        here = [cut - start for cut in cuts if start <= cut < start + len(text)]
        if here:
            text = _insert(text, here)
            piece = text if type(piece) is str else (piece[0], piece[1], text)
        result.append(piece)
        out.append(text)
    return result, "".join(out)


def _insert(text: str, offsets: Sequence[int]) -> str:
    bounds = [0, *offsets, len(text)]
    return "\u200b".join(text[a:b] for a, b in zip(bounds, bounds[1:], strict=False))


