"""JSON-like data whose texts record their untrusted characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeAlias

from agentkit_prompts.templates.spans import Segment


class Segments(tuple[Segment, ...]):
    """A text as its segments: a leaf of a tree."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join([segment.text for segment in self])


Tree: TypeAlias = Any
"""JSON-like data whose texts, keys included, are `Segments`, or plain `str` for text of the developer."""
Render: TypeAlias = Callable[[Tree], str]
"""Function that renders a tree, with all `Segments` converted to `str`."""


def untrusted(text: str, pointer: str = "") -> Segments:
    """Return an untrusted text with one origin."""
    return Segments([Segment(text, pointer, "untrusted")])


def is_tainted(segment: Segment) -> bool:
    """True if a segment is untrusted and not empty."""
    return segment.trust == "untrusted" and segment.text != ""


def rewrite(
    tree: Tree, change: Callable[[Segments], object], of_key: Callable[[Segments], object] | None = None
) -> Tree:
    """Return a copy of the tree with `change` applied to all `Segments`, or `of_key` to keys."""
    kind = type(tree)
    if kind is Segments:
        return change(tree)
    if kind is dict:
        changed: dict[Any, Tree] = {}
        for key, value in tree.items():
            if type(key) is Segments:
                key = (of_key or change)(key)
            changed[key] = rewrite(value, change, of_key)
        return changed
    if kind is list:
        return [rewrite(value, change, of_key) for value in tree]
    return tree


def untagged(tree: Tree) -> Tree:
    """Return the tree with all `Segments` as `str`."""
    return rewrite(tree, lambda segments: segments.text)


def segments_of(tree: Tree) -> Iterator[Segment]:
    """Yield the segments of a tree in order, keys included."""
    kind = type(tree)
    if kind is Segments:
        yield from tree
    elif kind is dict:
        for key, value in tree.items():
            yield from segments_of(key)
            yield from segments_of(value)
    elif kind is list:
        for value in tree:
            yield from segments_of(value)


def unused(text: str) -> Iterator[str]:
    """Yield private-use characters that are not in `text`, in ascending order."""
    codes = chain(range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
    return (character for character in map(chr, codes) if character not in text)
