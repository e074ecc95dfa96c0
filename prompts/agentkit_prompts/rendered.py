"""What rendering a prompt gives: text, media, and where every character came from.

While a template runs only raw pieces are collected. Spans (offsets, lines, pointers, trust) are worked out from them
when somebody asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from agentkit_prompts.context import Trust
from agentkit_prompts.engine import Piece, Program, RenderedText, Trusted
from agentkit_prompts.engine.trace import Trace
from agentkit_prompts.errors import PromptError
from agentkit_prompts.frozen import FrozenDict
from agentkit_prompts.parts import MARKER, Media
from agentkit_prompts.tokens import TokenCounter, media_tokens

__all__ = ["ELLIPSIS", "Rendered", "Segment", "Span", "tile"]

ELLIPSIS = "\u2026"
"""Stands where text was cut."""

_OPENING = "<|media:"
_SPACE = re.compile(r"\s+")
_LONGEST_WORD = 80
_TRUSTED_ROOTS = frozenset({"tools", "examples", "locale", "now", "extra"})


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


class _Origin(Protocol):
    def segments(self, prompt: str) -> Iterator[Segment]: ...


class Rendered:
    """The rendering of one prompt, or of several joined.

    Attributes:
        text: The text, one marker `<|media:KIND:ID|>` per use of a media part.
        media: The media parts in the order of their markers; a part used twice is here twice.
    """

    __slots__ = ("_count", "_origin", "media", "roleless", "text", "wire")

    text: str
    media: tuple[Media, ...]
    _origin: _Origin
    _count: tuple[TokenCounter, int] | None
    roleless: str | None
    """The plain text in which untrusted text forms no role, once a target has asked for it."""
    wire: FrozenDict | None
    """The message a target made of it last, kept for the next turn."""

    def __init__(self, text: str, media: tuple[Media, ...], origin: _Origin) -> None:
        self.text = text
        self.media = media
        self._origin = origin
        self._count = None
        self.wire = None
        self.roleless = None

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
        trace = program.trace(values)
        text = trace.text
        if not trace.parts and _OPENING not in text:
            return cls(text, (), _Template(program, trace, values, prefixes))
        pieces = trace.pieces()
        texts: list[str] = []
        media: list[Media] = []
        for piece in pieces:
            value = piece if isinstance(piece, str) else piece[2]
            if isinstance(value, Media):
                media.append(value)
                texts.append(value.marker)
                continue
            texts.append(value)
            if type(value) is RenderedText:
                media.extend(rendered_of(value).media)
            elif _OPENING in value:
                media.extend(_nested_media(value, values.get("wrapped_str")))
        text = "".join(texts)
        if text.count(_OPENING) != len(media):
            pieces, text = _defuse(pieces, texts, {part.id for part in media})
        return cls(text, tuple(media), _Template(program, pieces, values, prefixes))

    @classmethod
    def around(cls, before: str, child: Rendered, after: str, name: str = "") -> Rendered:
        """Put text of the template around a rendering, the rendering of a child when it has a name."""
        if _OPENING in before or _OPENING in after:
            raise PromptError(f"{_OPENING!r} is reserved for media markers")
        return cls(before + child.text + after, child.media, _Around(before, child, after, name))

    @classmethod
    def join(cls, separator: str, children: Sequence[tuple[str, Rendered]], label: str = "") -> Rendered:
        """Join named renderings; the separators belong to `label`."""
        if len(children) == 1:
            name, child = children[0]
            return cls(child.text, child.media, _Join(separator, children, label)) if name else child
        text = separator.join([child.text for _, child in children])
        media: tuple[Media, ...] = ()
        for _, child in children:
            if child.media:
                media += child.media
        # A marker holds no line break: across one, none can form.
        if "\n" not in separator and text.count(_OPENING) != len(media):
            raise PromptError(
                f"joining {', '.join(name for name, _ in children)} with {separator!r} would form a media marker; "
                "use a separator with a line break"
            )
        return cls(text, media, _Join(separator, children, label))

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
        """Return at most `most` ascending offsets, the end last, at which the text may be cut: between words where
        there are any, never inside a media marker or an atomic passage.
        """
        text, size = self.text, len(self.text)
        points: list[int] = []
        kept_whole = [(span.start, span.end) for span in self._whole_spans()]
        for number in range(1, most):
            point = size * number // most
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
        if over and over in mapped.text:
            whole = change(mapped.text)
            return Rendered(whole, self.media, _Plain(whole, "", self.trust))
        return mapped

    @classmethod
    def from_segments(cls, segments: Sequence[Segment]) -> Rendered:
        """Make a rendering of segments."""
        text = "".join([segment.text for segment in segments])
        return cls(text, tuple(part.media for part in segments if part.media is not None), _Segments(segments))

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


class _Around:
    __slots__ = ("after", "before", "child", "name")

    def __init__(self, before: str, child: Rendered, after: str, name: str) -> None:
        self.name = name
        self.before = before
        self.child = child
        self.after = after

    def segments(self, prompt: str) -> Iterator[Segment]:
        yield Segment(self.before, prompt, None, "", "trusted")
        yield from self.child.segments(f"{prompt}.{self.name}" if prompt and self.name else prompt or self.name)
        yield Segment(self.after, prompt, None, "", "trusted")


class _Segments:
    __slots__ = ("_segments",)

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments

    def segments(self, prompt: str) -> Iterator[Segment]:
        for segment in self._segments:
            path = f"{prompt}.{segment.prompt}" if prompt and segment.prompt else prompt or segment.prompt
            yield segment._replace(prompt=path)


class _Join:
    __slots__ = ("children", "label", "separator")

    def __init__(self, separator: str, children: Sequence[tuple[str, Rendered]], label: str) -> None:
        self.label = label
        self.separator = separator
        self.children = children

    def segments(self, prompt: str) -> Iterator[Segment]:
        for index, (name, child) in enumerate(self.children):
            if index and self.separator:
                yield Segment(self.separator, prompt or self.label, None, "", "trusted")
            yield from child.segments(f"{prompt}.{name}" if prompt else name)


class _Template:
    __slots__ = ("pieces", "prefixes", "program", "values")

    def __init__(
        self,
        program: Program,
        pieces: Sequence[Piece] | Trace,
        values: Mapping[str, Any],
        prefixes: Mapping[str, str] | None,
    ) -> None:
        self.program = program
        self.pieces = pieces
        self.values = values
        self.prefixes = prefixes or {}

    def segments(self, prompt: str) -> Iterator[Segment]:
        sites = self.program.sites
        for piece in self.pieces.pieces() if isinstance(self.pieces, Trace) else self.pieces:
            if isinstance(piece, str):
                yield Segment(piece, prompt, None, "", "trusted")
                continue
            number, index, value = piece
            if type(value) is RenderedText:
                yield from rendered_of(value).segments(prompt)
                continue
            site = sites[number]
            indices = index if type(index) is tuple else (index,)
            pointer = site.pointer.format(*indices) if site.pointer else ", ".join(site.roots)
            vouched = type(value) is Trusted or site.pointer.endswith("].role")  # a role is one of four words
            trust: Trust = "trusted" if vouched else self._trust(site.roots, site.pointer, indices)
            for root, prefix in self.prefixes.items():
                if pointer == root or pointer.startswith((root + ".", root + "[")):
                    pointer = prefix + pointer[len(root) :]
                    break
            if isinstance(value, Media):
                yield Segment(value.marker, prompt, site.line, pointer, "untrusted", value)
            else:
                yield Segment(str(value), prompt, site.line, pointer, trust, None, self._atomic(site.pointer, indices))

    def _atomic(self, pointer: str, indices: Sequence[Any]) -> bool:
        """Whether the value belongs to an item of the context that must not be cut."""
        root, bracket, _ = pointer.partition("[{0}]")
        if not bracket:
            return False
        items = self.values.get(root)
        return isinstance(items, tuple) and bool(getattr(items[indices[0]], "atomic", False))

    def _trust(self, roots: Iterable[str], pointer: str, indices: Sequence[Any]) -> Trust:
        """Return the lowest trust among what an expression reads."""
        for root in roots:
            value = self.values.get(root)
            if type(value) is RenderedText:
                if rendered_of(value).trust == "untrusted":
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


def rendered_of(value: RenderedText) -> Rendered:
    """Return what a wrapped text was rendered from."""
    rendered = value.rendered
    if not isinstance(rendered, Rendered):
        raise PromptError("a wrapped text must carry the rendering it came from: use Rendered.as_wrapped")
    return rendered


def _nested_media(text: str, wrapped: object) -> list[Media]:
    """Find the media of a wrapped rendering whose markers came through a filter such as `trim` unharmed."""
    known = {part.id: part for part in rendered_of(wrapped).media} if isinstance(wrapped, RenderedText) else {}
    return [known[found[2]] for found in MARKER.finditer(text) if found[2] in known]


def _defuse(pieces: Sequence[Piece], texts: Sequence[str], known: set[str]) -> tuple[list[Piece], str]:
    """Break every marker opening that no media part stands behind: one that two neighbouring values form together."""
    real: set[int] = set()
    starts: list[int] = []
    offset = 0
    for piece, text in zip(pieces, texts, strict=True):
        starts.append(offset)
        if not isinstance(piece, str):
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
            piece = text if isinstance(piece, str) else (piece[0], piece[1], text)
        result.append(piece)
        out.append(text)
    return result, "".join(out)


def _insert(text: str, offsets: Sequence[int]) -> str:
    bounds = [0, *offsets, len(text)]
    return "\u200b".join(text[a:b] for a, b in pairwise(bounds))
