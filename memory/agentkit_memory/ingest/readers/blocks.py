"""Blocks: the structural pieces of a document. One that is very long comes in parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["MAX_TITLE", "PART", "Block", "Kind", "Part"]

PART = 8192
"""Characters after which a block is yielded in part: more than the size up to which blocks are kept whole."""

MAX_TITLE = 200
"""Characters of a heading in a title; all of it stays in the text."""


Kind: TypeAlias = Literal["text", "code", "list", "table", "heading"]


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, a list, a table, a piece of code, or a heading, with the blank lines after it."""

    text: str
    kind: Kind = "text"
    level: int = 0
    """Of a heading, 1 being the highest."""
    title: str = ""
    """Of a heading: its text."""
    continues: bool = False
    """Whether it is the next part of the block before."""


@dataclass(frozen=True, slots=True)
class Part:
    """The beginning of a page or a record, across which no chunk reaches."""

    meta: str = "{}"
    """Metadata of its chunks, as JSON."""
    title: str = ""
    line: int | None = None
    """Line of the file that all of it stands on; None where its lines are counted from 1."""
    apart: bool = False
    """Whether it is unrelated to the part before: their chunks are not neighbours then."""
