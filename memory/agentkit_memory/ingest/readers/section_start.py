"""`SectionStart`: the start of a page or a record between the blocks of a document."""

from __future__ import annotations

from dataclasses import dataclass


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
