"""Where the text of a rendering came from: kept as it was made, worked out into segments when somebody asks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from agentkit_prompts.context.parts import MARKER, Media
from agentkit_prompts.context.prompt_context import Trust
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.engine import Program, RenderedText, Trace, Trusted
from agentkit_prompts.templates.spans import MEDIA_OPENING, Segment

if TYPE_CHECKING:
    from agentkit_prompts.templates.rendered import Rendered

__all__ = ["Around", "FromTemplate", "Join", "Origin", "Plain", "Segments"]

_TRUSTED_ROOTS = frozenset({"tools", "examples", "locale", "now", "extra"})
_VOUCHED_ROOTS = _TRUSTED_ROOTS - {"examples"}  # an example may be marked as untrusted
_ROOT = re.compile(r"\w+")
_ITEM = re.compile(r"(\w+)\[(\d+)\]")


class Origin(Protocol):
    """Knows where the text of a rendering came from."""

    @property
    def is_vouched_for(self) -> bool:
        """Whether it is known at once that all of it is trusted."""
        ...

    def segments(self, prompt: str) -> Iterator[Segment]:
        """Yield the text in order, paths below `prompt`."""
        ...


class Plain:
    """Text from one place."""

    __slots__ = ("pointer", "text", "trust")

    def __init__(self, text: str, pointer: str, trust: Trust) -> None:
        self.text = text
        self.pointer = pointer
        self.trust: Trust = trust

    @property
    def is_vouched_for(self) -> bool:
        """Whether the one place is trusted."""
        return self.trust == "trusted"

    def segments(self, prompt: str) -> Iterator[Segment]:
        """Yield the text in order, paths below `prompt`."""
        yield Segment(self.text, prompt, None, self.pointer, self.trust)


class Around:
    """Text of a template around one rendering."""

    __slots__ = ("after", "before", "child", "name")

    def __init__(self, before: str, child: Rendered, after: str, name: str) -> None:
        self.name = name
        self.before = before
        self.child = child
        self.after = after

    is_vouched_for = False

    def segments(self, prompt: str) -> Iterator[Segment]:
        """Yield the text in order, paths below `prompt`."""
        yield Segment(self.before, prompt, None, "", "trusted")
        yield from self.child.segments(f"{prompt}.{self.name}" if prompt and self.name else prompt or self.name)
        yield Segment(self.after, prompt, None, "", "trusted")


class Segments:
    """Segments that are known already."""

    __slots__ = ("_segments",)

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments

    is_vouched_for = False

    def segments(self, prompt: str) -> Iterator[Segment]:
        """Yield the text in order, paths below `prompt`."""
        for segment in self._segments:
            path = f"{prompt}.{segment.prompt}" if prompt and segment.prompt else prompt or segment.prompt
            yield segment._replace(prompt=path)


class Join:
    """Renderings with a separator between them."""

    __slots__ = ("children", "label", "separator")

    def __init__(self, separator: str, children: Sequence[tuple[str, Rendered]], label: str) -> None:
        self.label = label
        self.separator = separator
        self.children = children

    is_vouched_for = False

    def segments(self, prompt: str) -> Iterator[Segment]:
        """Yield the text in order, paths below `prompt`."""
        for index, (name, child) in enumerate(self.children):
            if index and self.separator:
                yield Segment(self.separator, prompt or self.label, None, "", "trusted")
            yield from child.segments(f"{prompt}.{name}" if prompt else name)


class FromTemplate:
    """What a template printed; looked into when somebody asks."""

    __slots__ = ("prefixes", "program", "trace", "values")

    def __init__(
        self,
        program: Program,
        trace: Trace,
        values: Mapping[str, Any],
        prefixes: Mapping[str, str] | None,
    ) -> None:
        self.program = program
        self.trace = trace
        self.values = values
        self.prefixes = prefixes or {}

    @property
    def is_vouched_for(self) -> bool:
        """Whether it reads nothing but what the developer wrote."""
        return self.program.names.keys() <= _VOUCHED_ROOTS

    def segments(self, prompt: str) -> Iterator[Segment]:
        """Yield the text in order, paths below `prompt`."""
        sites = self.program.sites
        for piece in self.trace.pieces():
            if isinstance(piece, str):
                yield Segment(piece, prompt, None, "", "trusted")
                continue
            number, index, value = piece
            if type(value) is RenderedText:
                yield from rendered_of(value).segments(prompt)
                continue
            site = sites[number]
            pointer = site.pointer.format(*(index if type(index) is tuple else (index,))) if site.pointer else ""
            item = self._item(pointer)
            # A role is one of four words.
            vouched = type(value) is Trusted or pointer.endswith("].role")
            trust: Trust = "trusted" if vouched else self._trust(site.roots, item)
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
        wrapped = self.values.get("wrapped_str")
        whole = rendered_of(wrapped).media if isinstance(wrapped, RenderedText) else ()
        left = list(whole)
        start = 0
        for found in MARKER.finditer(text):
            named = (found[1], found[2])
            part = next((one for one in (*left, *whole) if (one.kind, one.id) == named), None)
            if part is None:
                continue
            if part in left:
                left.remove(part)
            yield segment._replace(text=text[start : found.start()])
            yield segment._replace(text=part.marker, media=part)
            start = found.end()
        yield segment._replace(text=text[start:])

    def _place(self, pointer: str, roots: Iterable[str]) -> str:
        """Return where in the context a value lives: its path, or else the roots it was made from."""
        if not pointer:
            return ", ".join(self.prefixes.get(root, root) for root in roots)
        root = _ROOT.match(pointer) if self.prefixes else None
        prefix = self.prefixes.get(root[0]) if root else None
        return prefix + pointer[len(root[0]) :] if root and prefix else pointer

    def _item(self, pointer: str) -> object:
        """Return the document, fact or example that a pointer such as `documents[3].text` leads into, or None."""
        found = _ITEM.match(pointer) if "[" in pointer else None
        items = self.values.get(found[1]) if found else None
        number = int(found[2]) if found else 0
        return items[number] if isinstance(items, tuple) and number < len(items) else None

    def _atomic(self, roots: Iterable[str], item: object) -> bool:
        """Whether a value must not be cut: its item says so or, where none is known, one of those it may be from."""
        if item is not None:
            return bool(getattr(item, "atomic", False))
        for root in roots:
            items = self.values.get(root)
            if isinstance(items, tuple) and any(getattr(one, "atomic", False) for one in items):
                return True
        return False

    def _trust(self, roots: Iterable[str], item: object) -> Trust:
        """Return the lowest trust among what an expression reads."""
        own = getattr(item, "trust", None)
        if own is not None:
            return "trusted" if own == "trusted" else "untrusted"
        for root in roots:
            value = self.values.get(root)
            if isinstance(value, RenderedText):
                if rendered_of(value).trust == "untrusted":
                    return "untrusted"
            elif isinstance(value, Trusted):
                continue
            elif isinstance(value, tuple) and value and hasattr(value[0], "trust"):
                if any(one.trust == "untrusted" for one in value):
                    return "untrusted"
            elif root not in _TRUSTED_ROOTS:
                return "untrusted"
        return "trusted"


def rendered_of(value: RenderedText) -> Rendered:
    """Return what a wrapped text was rendered from."""
    rendered = value.rendered
    if not hasattr(rendered, "segments"):
        raise PromptError("a wrapped text must carry the rendering it came from: use Rendered.as_wrapped")
    return cast("Rendered", rendered)
