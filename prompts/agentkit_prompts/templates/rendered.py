"""What rendering a prompt gives: text, media, and where every character came from.

A rendering keeps what it was made of, and works out its segments when somebody asks.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.frozen import Deriving
from agentkit_prompts.context.parts import MARKER, MEDIA_OPENING, Media, neutralise_markers
from agentkit_prompts.context.prompt_context import Trust
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.operations.values import RenderedText, Trusted
from agentkit_prompts.templates.spans import Segment, Span, defused, tile
from agentkit_prompts.tokens.counter import TokenCounter, media_tokens

if TYPE_CHECKING:
    from agentkit_prompts.templates.engine import Program

__all__ = ["Around", "FromSegments", "FromTemplate", "Join", "Plain", "Rendered", "count_tokens"]

_TRUSTED_ROOTS = frozenset({"now", "extra"})
"""What only the developer gives; tools and examples know their own trust, everything else is untrusted."""
_ROOT = re.compile(r"\w+")
_ITEM = re.compile(r"(\w+)\[(\d+)\]")
_ROLE = re.compile(r"(\w+)\[\d+\]\.role")


class Rendered(Deriving):
    """The rendering of one prompt, or of several joined. Read-only; made by `from_text` or by one of its kinds.

    Attributes:
        text: The text, one marker `<|media:KIND:ID|>` per use of a media part.
        media: The media parts in the order of their markers; a part used twice is here twice.
    """

    __slots__ = ("_is_defused", "media", "text")

    text: str
    media: tuple[Media, ...]

    def _set(self, text: str, media: tuple[Media, ...]) -> None:
        """Fill in what every rendering has; what only reads like a media marker is broken."""
        self.media = media
        if "<" in text and MEDIA_OPENING in text and text.count(MEDIA_OPENING) != len(media):  # one character is cheap
            self._is_defused = True
            text = "".join([segment.text for segment in self.segments()])
        else:
            self._is_defused = False
        self.text = text

    @staticmethod
    def from_text(text: str, *, pointer: str = "", trust: Trust = "trusted") -> Rendered:
        """Make a rendering of text from one origin; what looks like a media marker in it is broken."""
        return Plain(text, pointer, trust)

    @property
    def is_trusted(self) -> bool:
        """Whether it is known at once, without looking at the segments, that all of it is trusted."""
        raise NotImplementedError

    def _pieces(self, prompt: str) -> Iterator[Segment]:
        raise NotImplementedError

    def segments(self, prompt: str = "") -> Iterator[Segment]:
        """Yield the text in order, cut where its origin changes; paths are below `prompt`."""
        pieces = self._pieces(prompt)
        return iter(defused(list(pieces))) if self._is_defused else pieces

    def spans(self, prompt: str = "") -> tuple[Span, ...]:
        """Return the spans of the text."""
        return tuple(tile(self.segments(prompt)))

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

    @property
    def trust(self) -> Trust:
        """The lowest trust in it."""
        return "untrusted" if any(part.trust == "untrusted" for part in self.segments() if part.text) else "trusted"

    def tokens(self, counter: TokenCounter) -> int:
        """Return what it costs, media included; counted once per counter."""
        return self.derive(count_tokens, counter)

    def replace(self, old: str, new: str) -> Rendered:
        """Return the rendering with `old` replaced in its text, also where two values form it together."""
        return self if old not in self.text else self.map(lambda text: text.replace(old, new), old)

    def map(self, change: Callable[[str], str], over: str = "") -> Rendered:
        """Return the rendering with `change` applied to the text of each span; media stay.

        When `over` is still in the text after that, neighbouring spans form it together: they are changed as one.
        """
        changed = [
            part if part.media is not None else part._replace(text=change(part.text)) for part in self.segments()
        ]
        mapped = FromSegments(changed)
        if not over or over not in mapped.text:
            return mapped
        merged: list[Segment] = []
        for part in changed:
            if merged and part.media is None and merged[-1].media is None:
                trust: Trust = "untrusted" if "untrusted" in (merged[-1].trust, part.trust) else "trusted"
                merged[-1] = merged[-1]._replace(text=merged[-1].text + part.text, trust=trust, pointer="")
            else:
                merged.append(part)
        return FromSegments(
            [part if part.media is not None else part._replace(text=change(part.text)) for part in merged]
        )

    def __str__(self) -> str:
        return self.plain

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.text)} characters, {len(self.media)} media)"


def count_tokens(rendered: Rendered, counter: TokenCounter) -> int:
    """Return what a rendering costs, media included, for one that is counted once."""
    if not rendered.media:
        return counter.count(rendered.text)
    return counter.count(MARKER.sub("", rendered.text)) + media_tokens(rendered.media)


class Plain(Rendered):
    """Text from one place; what looks like a media marker in it is broken."""

    __slots__ = ("_pointer", "_trust")

    def __init__(self, text: str, pointer: str = "", trust: Trust = "trusted") -> None:
        self.text = neutralise_markers(text) if "<" in text else text
        self.media = ()
        self._pointer = pointer
        self._trust: Trust = trust
        self._is_defused = False

    @property
    def is_trusted(self) -> bool:
        """Whether the one place is trusted."""
        return self._trust == "trusted"

    def _pieces(self, prompt: str) -> Iterator[Segment]:
        yield Segment(self.text, prompt, None, self._pointer, self._trust)


class Around(Rendered):
    """Text of a template around one rendering, the rendering of a child when it has a name."""

    __slots__ = ("_after", "_before", "_child", "_name")

    def __init__(self, before: str, child: Rendered, after: str, name: str = "") -> None:
        self._before = before
        self._child = child
        self._after = after
        self._name = name
        text = f"{before}{child.text}{after}"
        if "<" in text:
            self._set(text, child.media)
        else:
            self.text = text
            self.media = child.media
            self._is_defused = False

    @property
    def is_trusted(self) -> bool:
        """Whether the rendering inside is."""
        return self._child.is_trusted

    def _pieces(self, prompt: str) -> Iterator[Segment]:
        yield Segment(self._before, prompt, None, "", "trusted")
        yield from self._child.segments(_below(prompt, self._name))
        yield Segment(self._after, prompt, None, "", "trusted")


class Join(Rendered):
    """Named renderings with a separator between them, which belongs to `label`."""

    __slots__ = ("_children", "_label", "_separator")

    def __init__(self, separator: str, children: Sequence[tuple[str, Rendered]], label: str = "") -> None:
        self._separator = separator
        self._children = children
        self._label = label
        texts: list[str] = []
        self.media = ()
        for _, child in children:
            texts.append(child.text)
            if child.media:
                self.media += child.media
        self.text = separator.join(texts)
        self._is_defused = False
        if "\n" not in separator:  # a marker holds no line break: across one, none can form
            self._set(self.text, self.media)

    @property
    def is_trusted(self) -> bool:
        """Whether all of them are."""
        return all(child.is_trusted for _, child in self._children)

    def _pieces(self, prompt: str) -> Iterator[Segment]:
        for index, (name, child) in enumerate(self._children):
            if index and self._separator:
                yield Segment(self._separator, prompt or self._label, None, "", "trusted")
            yield from child.segments(_below(prompt, name))


class FromSegments(Rendered):
    """Segments that are known already."""

    __slots__ = ("_segments",)

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        media = tuple([part.media for part in segments if part.media is not None])
        self._set("".join([segment.text for segment in segments]), media)

    @property
    def is_trusted(self) -> bool:
        """Whether each of them is."""
        return all(segment.trust == "trusted" for segment in self._segments)

    def _pieces(self, prompt: str) -> Iterator[Segment]:
        for segment in self._segments:
            yield segment._replace(prompt=_below(prompt, segment.prompt))


class FromTemplate(Rendered):
    """What a template printed over `values`; `prefixes` maps a name to where in the context its value lives.

    Raises:
        TemplateError: A value is missing, has the wrong type, cannot be printed, or a limit was hit.
    """

    __slots__ = ("_prefixes", "_program", "_trace", "_values")

    def __init__(self, program: Program, values: Mapping[str, Any], prefixes: Mapping[str, str] | None = None) -> None:
        self._program = program
        self._values = values
        self._prefixes = prefixes or {}
        self._trace = trace = program.trace(values)
        text = trace.text
        if trace.parts or ("<" in text and MEDIA_OPENING in text):
            self._set(text, tuple([piece.media for piece in self._pieces("") if piece.media is not None]))
        else:
            self.text = text
            self.media = ()
            self._is_defused = False

    @property
    def is_trusted(self) -> bool:
        """Whether it reads nothing but what the developer wrote."""
        return self._program.names.keys() <= _TRUSTED_ROOTS

    def _pieces(self, prompt: str) -> Iterator[Segment]:
        sites = self._program.sites
        for piece in self._trace.pieces():
            if isinstance(piece, str):
                yield Segment(piece, prompt, None, "", "trusted")
                continue
            number, index, value = piece
            if type(value) is RenderedText:
                yield from _rendered_of(value).segments(prompt)
                continue
            site = sites[number]
            pointer = site.pointer.format(*(index if type(index) is tuple else (index,))) if site.pointer else ""
            item = self._item(pointer)
            is_trusted = type(value) is Trusted or self._is_role(pointer)
            trust: Trust = "trusted" if is_trusted else self._trust_of(site.roots, item)
            place = self._place(pointer, site.roots)
            if isinstance(value, Media):
                yield Segment(value.marker, prompt, site.line, place, "untrusted", value)
            elif MEDIA_OPENING in value:
                yield from self._split(str(value), Segment("", prompt, site.line, place, trust))
            else:
                atomic = self._atomic(site.roots, item)
                yield Segment(str(value), prompt, site.line, place, trust, None, atomic)

    def _split(self, text: str, segment: Segment) -> Iterator[Segment]:
        """Cut a wrapped text that came through a filter such as `trim` at the markers that are still whole."""
        wrapped = self._values.get("wrapped_str")
        whole = _rendered_of(wrapped).media if isinstance(wrapped, RenderedText) else ()
        left: dict[tuple[str, str], deque[Media]] = {}
        for one in whole:
            left.setdefault((one.kind, one.id), deque()).append(one)
        start = 0
        for found in MARKER.finditer(text):
            parts = left.get((found[1], found[2]))
            if parts is None:
                continue
            part = parts[0]
            parts.rotate(-1)
            yield segment._replace(text=text[start : found.start()])
            yield segment._replace(text=part.marker, media=part)
            start = found.end()
        yield segment._replace(text=text[start:])

    def _place(self, pointer: str, roots: Iterable[str]) -> str:
        """Return where in the context a value lives: its path, or else the roots it was made from."""
        if not pointer:
            return ", ".join(self._prefixes.get(root, root) for root in roots)
        root = _ROOT.match(pointer) if self._prefixes else None
        prefix = self._prefixes.get(root[0]) if root else None
        return prefix + pointer[len(root[0]) :] if root and prefix else pointer

    def _item(self, pointer: str) -> object:
        """Return the document, fact or example that a pointer such as `documents[3].text` leads into, or None."""
        found = _ITEM.match(pointer) if "[" in pointer else None
        items = self._values.get(found[1]) if found else None
        number = int(found[2]) if found else 0
        return items[number] if isinstance(items, tuple) and number < len(items) else None

    def _is_role(self, pointer: str) -> bool:
        """Whether a pointer leads to the role of a message, which is one of four words."""
        found = _ROLE.fullmatch(pointer) if pointer.endswith(".role") else None
        return found is not None and type(self._values.get(found[1])) is Conversation

    def _atomic(self, roots: Iterable[str], item: object) -> bool:
        """Whether a value must not be cut: its item says so or, where none is known, one of those it may be from."""
        if item is not None:
            return bool(getattr(item, "atomic", False))
        for root in roots:
            items = self._values.get(root)
            if isinstance(items, tuple) and any(getattr(one, "atomic", False) for one in items):
                return True
        return False

    def _trust_of(self, roots: Iterable[str], item: object) -> Trust:
        """Return the lowest trust among what an expression reads."""
        own = getattr(item, "trust", None)
        if own is not None:
            return "trusted" if own == "trusted" else "untrusted"
        for root in roots:
            value = self._values.get(root)
            if isinstance(value, RenderedText):
                if _rendered_of(value).trust == "untrusted":
                    return "untrusted"
            elif isinstance(value, Trusted):
                continue
            elif isinstance(value, tuple):
                if any(getattr(one, "trust", "untrusted") != "trusted" for one in value):
                    return "untrusted"
            elif root not in _TRUSTED_ROOTS:
                return "untrusted"
        return "trusted"


def _below(prompt: str, name: str) -> str:
    """Return the path of `name` below `prompt`, where either may be empty."""
    return f"{prompt}.{name}" if prompt and name else prompt or name


def _rendered_of(value: RenderedText) -> Rendered:
    if not isinstance(value.rendered, Rendered):
        raise PromptError("a wrapped text must carry the rendering it came from: use Rendered.as_wrapped")
    return value.rendered
