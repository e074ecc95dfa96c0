"""JSON-like data in which each text knows which of its characters are untrusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Render", "Run", "Runs", "Tree", "rewrite", "untagged", "unused"]


class Run(NamedTuple):
    """A run of characters of one origin."""

    text: str
    pointer: str = ""
    """Where in the context it is from, such as `documents[3].text`."""
    is_tainted: bool = True


class Runs(tuple[Run, ...]):
    """A text as its runs: a leaf of a tree."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """All of it."""
        return "".join([run.text for run in self])


Tree: TypeAlias = Any
"""JSON-like data whose texts, keys included, are either `Runs` or, where they are the developer's, plain `str`."""
Render: TypeAlias = Callable[[Tree], str]
"""Renders a tree in which every `Runs` has become a str."""


def rewrite(tree: Tree, change: Callable[[Runs], object]) -> Tree:
    """Return the tree with `change` of every `Runs`, also of one that is a key; the rest is copied, never changed."""
    if type(tree) is Runs:
        return change(tree)
    if type(tree) is dict:
        return {change(key) if type(key) is Runs else key: rewrite(value, change) for key, value in tree.items()}
    if type(tree) is list:
        return [rewrite(value, change) for value in tree]
    return tree


def untagged(tree: Tree) -> Tree:
    """Return the tree with every `Runs` as a str."""
    return rewrite(tree, lambda runs: runs.text)


def unused(text: str) -> Iterator[str]:
    """Yield private-use characters that are not in `text`, in ascending order."""
    codes = chain(range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
    return (character for character in map(chr, codes) if character not in text)
