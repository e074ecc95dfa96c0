"""`TracedText`: the rendering of a template. The origins of its text are computed from the trace at their first use."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.parts import MARKER, MEDIA_OPENING, Media
from agentkit_prompts.context.prompt_context import Trust
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.sandbox.values import MediaText, RenderedText, Site, Trusted
from agentkit_prompts.templates.spans import Segment

if TYPE_CHECKING:
    from agentkit_prompts.templates.item_paths import ItemPaths
    from agentkit_prompts.templates.sandbox.trace import Piece, Trace

_TRUSTED_ROOTS = frozenset({"now", "extra"})
"""Context names whose values come from the developer. Other values are untrusted, unless a value states its trust."""
_ROOT = re.compile(r"\w+")
_ITEM = re.compile(r"(?<!\w)(\w++)\[(\d++)\]")
_ROLE = re.compile(r"(?<!\w)(\w++)\[\d++\]\.role")


def wrapped_value(rendered: Rendered) -> RenderedText:
    """Return a rendering as a value for a template that keeps its origins."""
    return RenderedText(rendered.text, rendered)


class TracedText(Rendered):
    """Rendering of a template.

    Args:
        trace: Result of the program.
        values: Values that the program read.
        prefixes: Paths of values in the context, by the name in `values`, if the name is not the path.
        paths: Paths of items in the context, if they can have another position in `values`, else None.
    """

    __slots__ = ("_paths", "_prefixes", "_trace", "_values")

    def __init__(
        self, trace: Trace, values: Mapping[str, Any], prefixes: Mapping[str, str], paths: ItemPaths | None
    ) -> None:
        self._trace = trace
        self._values = values if paths is None else paths.values
        self._prefixes = prefixes
        self._paths = paths
        media: tuple[Media, ...] = ()
        # Without parts, a marker can come from a wrapped text that passed through a filter. The search for a single
        # character is ten times as fast in a long text, so it comes first.
        if trace.has_parts or ("<" in trace.text and MEDIA_OPENING in trace.text):
            media = tuple([segment.media for segment in self._make_segments() if segment.media is not None])
        super().__init__(trace.text, media)

    def _make_segments(self) -> Iterator[Segment]:
        for piece in self._trace.pieces():
            if piece.site is None:
                yield Segment(piece.text)
            else:
                yield from self._segments_of(piece, piece.site)

    def is_known_to_be_trusted(self) -> bool:
        """True if all text is trusted, because all values that the template prints are trusted."""
        # Media are never trusted, and rendered text has a trust for each part.
        if self._trace.has_parts:
            return False
        return all(self._is_trusted(root) for site in self._trace.sites for root in site.roots)

    def is_untrusted_in(self, ranges: Iterable[tuple[int, int]]) -> bool:
        """True if one of the ranges of offsets contains untrusted text.

        Origins are computed only for values in these ranges, because all origins would take ten times as long.
        """
        trace = self._trace
        if self.text is not trace.text:
            # Markers were broken after the rendering, so the offsets in the trace differ from offsets in the text.
            return True
        stops = [*accumulate(map(len, trace.texts))]
        sites = [site for sites, _ in trace.marks for site in sites]
        pieces: Sequence[Piece] = ()
        for begin, end in ranges:
            first = bisect_right(stops, begin)
            # Fast path: the range is inside one text of the template itself.
            if sites[first] is None and end <= stops[first]:
                continue
            for number in range(first, bisect_left(stops, end) + 1):
                if sites[number] is None:
                    continue
                pieces = pieces or [*trace.pieces()]
                if self._is_untrusted(pieces[number]):
                    return True
        return False

    def _is_untrusted(self, piece: Piece) -> bool:
        if piece.site is None:
            return False
        return any(segment.trust == "untrusted" for segment in self._segments_of(piece, piece.site))

    def _segments_of(self, piece: Piece, site: Site) -> Iterator[Segment]:
        """Yield the segments of the text that a `{{ }}` of the template printed."""
        value = piece.text
        if type(value) is RenderedText:
            yield from _rendered_of(value).segments()
            return
        pointer = piece.pointer
        item = self._item(pointer)
        is_trusted = type(value) is Trusted or self._is_role(pointer)
        trust: Trust = "trusted" if is_trusted else self._trust_of(site.roots, item)
        place = self._place(pointer, site.roots)
        if isinstance(value, MediaText):
            # Media are never trusted, because the developer did not write their content.
            yield Segment(str(value), place, "untrusted", line=site.line, media=value.media)
        elif MEDIA_OPENING in value:
            yield from self._split(str(value), Segment("", place, trust, line=site.line))
        else:
            atomic = self._atomic(site.roots, item)
            yield Segment(str(value), place, trust, line=site.line, atomic=atomic)

    def _split(self, text: str, segment: Segment) -> Iterator[Segment]:
        """Split the text of rendered prompts that passed a filter at its markers; `segment` contains the origin."""
        wrapped = self._values.get("wrapped_str")
        parts_of: dict[tuple[str, str], deque[Media]] = {}
        if isinstance(wrapped, RenderedText):
            for media in _rendered_of(wrapped).media:
                parts_of.setdefault((media.kind, media.id), deque()).append(media)
        start = 0
        for marker in MARKER.finditer(text):
            parts = parts_of.get((marker[1], marker[2]))
            if parts is None:
                continue
            # Files with the same content have the same marker: the uses refer to these files in turn.
            part = parts[0]
            parts.rotate(-1)
            yield segment._replace(text=text[start : marker.start()])
            yield segment._replace(text=part.marker, media=part)
            start = marker.end()
        yield segment._replace(text=text[start:])

    def _place(self, pointer: str, roots: Iterable[str]) -> str:
        """Return the path of a value in the context; if the pointer is empty, the paths of the roots."""
        if not pointer:
            return ", ".join(filter(None, map(self._place_of_root, roots)))
        root = _ROOT.match(pointer)
        if root is not None and root[0] in self._prefixes:
            return self._prefixes[root[0]] + pointer[root.end() :]
        if self._paths is not None:
            return self._paths.of(pointer)
        return pointer

    def _place_of_root(self, root: str) -> str:
        if root in self._prefixes or self._paths is None:
            return self._prefixes.get(root, root)
        return self._paths.of_all(root)

    def _item(self, pointer: str) -> object:
        """Return the item of the context, such as a document, that contains the value at a pointer; None if no item."""
        match = _ITEM.match(pointer)
        if match is None:
            root = _ROOT.match(pointer)
            if self._paths is None or root is None or not self._paths.contains(root[0]):
                return None
            return self._values[root[0]]
        items, number = self._values.get(match[1]), int(match[2])
        if not isinstance(items, tuple) or number >= len(items):
            return None
        return items[number]

    def _is_role(self, pointer: str) -> bool:
        """True for the pointer to the role of a message, which is trusted, because it is one of four words."""
        match = _ROLE.fullmatch(pointer)
        return match is not None and type(self._values.get(match[1])) is Conversation

    def _atomic(self, roots: Iterable[str], item: object) -> bool:
        """True if a value must not be cut: its item is atomic or, if the item is unknown, any possible item is."""
        if item is not None:
            return bool(getattr(item, "atomic", False))
        for root in roots:
            items = self._values.get(root)
            if isinstance(items, tuple) and any(getattr(value, "atomic", False) for value in items):
                return True
        return False

    def _trust_of(self, roots: Iterable[str], item: object) -> Trust:
        """Return the trust of the item; without an item that has a trust, the lowest trust of the roots."""
        own = getattr(item, "trust", None)
        is_trusted = own == "trusted"
        # The value can come from any of the roots.
        if own is None:
            is_trusted = all(self._is_trusted(root) for root in roots)
        if is_trusted:
            return "trusted"
        return "untrusted"

    def _is_trusted(self, root: str) -> bool:
        value = self._values.get(root)
        if isinstance(value, RenderedText):
            return _rendered_of(value).trust == "trusted"
        if isinstance(value, Trusted):
            return True
        if isinstance(value, tuple):
            return all(getattr(item, "trust", "untrusted") == "trusted" for item in value)
        return root in _TRUSTED_ROOTS


def _rendered_of(value: RenderedText) -> Rendered:
    if not isinstance(value.rendered, Rendered):
        raise PromptError("a wrapped text must contain its rendering: use RenderedText(text, rendered)")
    return value.rendered
