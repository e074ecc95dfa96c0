"""The rows that the separate process writes, one JSON array a line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator

PIECE = 65536
"""Maximum characters of a text in one line, which the other process reads into memory whole."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Unreadable(Exception):
    """A file cannot be read at all; the message continues the name of the file."""


def write(*row: object) -> None:
    """Write a row.

    ["title", TEXT] is the title of the file. ["section", NAMES] starts a page, slide, sheet, chapter or attachment;
    NAMES are its metadata. ["problem", TEXT] reports a corrupt part, ["gap", NAME, NUMBER_OR_TEXT, WHY] a part whose
    text is missing. The other rows are described at the functions of this module.
    """
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def write_title(text: str) -> None:
    """Write the title of the file, which is cut if it is long."""
    write("title", clean(text[:PIECE]))


def write_text(text: str) -> None:
    """Write plain text as rows ["text", PIECE]."""
    for piece in _pieces(text):
        write("text", piece)


def write_html(text: str) -> None:
    """Write an HTML page as rows ["html", PIECE], which end with an empty piece."""
    for piece in _pieces(text):
        write("html", piece)
    write("html", "")


def write_block(kind: str, text: str, level: int = 0, head: str = "", *, continues: bool = False) -> None:
    """Write a block as rows ["block", KIND, TEXT, LEVEL, HEAD, CONTINUES]; see `page_blocks.Block` of the prompts."""
    for number, piece in enumerate(_pieces(text)):
        write("block", kind, piece, level, clean(head), continues or number > 0)


def clean(text: str) -> str:
    """Return text that every database accepts."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def described(error: Exception) -> str:
    """Return the class and the message of an error in one line."""
    return clean(" ".join(f"{type(error).__name__}: {error}".split())[:200])


def _pieces(text: str) -> Iterator[str]:
    text = clean(text)
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]
