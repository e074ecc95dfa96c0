"""Blocks: the structural pieces of a document. A very long block is split into parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["MAX_PART", "MAX_TITLE", "Block", "Kind", "SectionStart"]

MAX_PART = 8192
"""Characters after which a part of a long block is yielded. Shorter blocks are never split by a reader."""

MAX_TITLE = 200
"""Maximum characters of a heading in a title; the text contains the whole heading."""

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
    """True if the block is the next part of the previous block."""
    head: str = ""
    """Lines with the names of the columns of a table, which each chunk of a cut table repeats."""


@dataclass(frozen=True, slots=True)
class SectionStart:
    """Start of a page or a record. No chunk contains text before and after it."""

    meta: str = "{}"
    """Metadata of the chunks of the page or record, as JSON."""
    title: str = ""
    line: int | None = None
    """Line of the file that contains the whole record; None for a page, whose lines are counted from 1."""
    is_separate: bool = False
    """True if the section is unrelated to the section before, so that their chunks are not neighbours."""
