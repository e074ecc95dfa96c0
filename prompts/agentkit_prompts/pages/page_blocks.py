"""`Block`: a heading, paragraph, list, table or piece of code of a web page, or of another document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

MAX_PART = 8192
"""Characters after which a part of a long block is yielded. Shorter blocks are never split by a reader."""

MAX_TITLE = 200
"""Maximum characters of a heading in a title; the text contains the whole heading."""

BlockKind: TypeAlias = Literal["text", "code", "list", "table", "heading"]


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a document, with the blank lines after it. A very long block is split into parts."""

    text: str
    kind: BlockKind = "text"
    level: int = 0
    """Level of a heading, 1 being the highest; 0 for the title of the document."""
    title: str = ""
    """Text of a heading, or the title of the document."""
    continues: bool = False
    """True if the block is the next part of the previous block."""
    head: str = ""
    """Lines with the names of the columns of a table, which each chunk of a cut table repeats."""
