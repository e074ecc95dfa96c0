"""Blocks: the structural pieces of a document. A very long block is split into parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["MAX_TITLE", "PART", "Block", "Kind", "Part"]

PART = 8192
"""Characters after which a part of a block is yielded: more than the size up to which a block stays whole."""

MAX_TITLE = 200
"""Characters of a heading in a title; all of it stays in the text."""


Kind: TypeAlias = Literal["text", "code", "list", "table", "heading"]


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, a list, a table, a piece of code, or a heading, with the blank lines after it."""

    text: str
    kind: Kind = "text"
    level: int = 0
    """Level of a heading, 1 being the highest."""
    title: str = ""
    """Text of a heading."""
    continues: bool = False
    """True if it continues the block before."""


@dataclass(frozen=True, slots=True)
class Part:
    """Start of a page or a record; no chunk crosses it."""

    meta: str = "{}"
    """Metadata of its chunks, as JSON."""
    title: str = ""
    line: int | None = None
    """Line of the file that contains all of it; None if its lines are counted from 1."""
    apart: bool = False
    """True if it is unrelated to the part before: their chunks are not neighbours then."""
