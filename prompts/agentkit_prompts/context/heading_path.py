"""`heading_above`: the title of a chunk without the headings with which its text starts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

_SEPARATOR = " > "
"""Text between the headings of a title."""
_MAX_HEAD = 2000
"""Maximum characters of the start of a text in which headings are searched."""
_MAX_LINES = 40
"""Maximum lines at the start of a text that are compared with a title."""
_MAX_LINE = 1000
"""Maximum characters of a line that is a heading with its markup."""
_MAX_HEADING = 200
"""Maximum characters of a heading in a title; readers of documents cut longer headings."""
_TAG = re.compile(r"<[^<>]*>")
_OPENING = re.compile(r"#{1,6}\s|[=-]+$")
"""Start of a heading in Markdown, or the line below a heading."""
_CLOSING = re.compile(r"\s#+$")
_TITLE_FIELD = re.compile(r"title[ \t]*[:=]", re.IGNORECASE)
_RULES = ("---", "+++")
"""Lines around front matter."""


def heading_above(title: str, text: str) -> str:
    """Return the title without the headings at its end with which the text starts.

    The title `Guide > Install` of a text that starts with `## Install` becomes `Guide`.
    """
    head = text[:_MAX_HEAD]
    # Most chunks of a long section do not contain their heading, so that no line has to be read.
    if not title or title.rpartition(_SEPARATOR)[2].casefold() not in html.unescape(head).casefold():
        return title
    rest = title
    for heading in reversed(list(_first_headings(title, head))):
        above = rest[: max(0, len(rest) - len(heading))]
        if rest[len(above) :].casefold() != heading.casefold():
            continue
        if not above:
            return ""
        if above.endswith(_SEPARATOR):
            rest = above.removesuffix(_SEPARATOR)
    return rest


def _first_headings(title: str, head: str) -> Iterator[str]:
    """Yield the headings of a title with which a text starts. Other headings and front matter are skipped."""
    path = f"{_SEPARATOR}{title}{_SEPARATOR}".casefold()
    lines = [line.strip() for line in head.split("\n", _MAX_LINES)]
    rule = lines[0] if lines[0] in _RULES else ""
    for line in lines[bool(rule) :]:
        if line == rule:
            rule = ""
            continue
        if len(line) > _MAX_LINE:
            return
        words = _words(line)
        if rule:
            words = _words(_TITLE_FIELD.sub("", line, count=1)).strip("\"'")
        if f"{_SEPARATOR}{words}{_SEPARATOR}".casefold() in path:
            yield words
        elif words and not rule and not _OPENING.match(line):
            return


def _words(line: str) -> str:
    """Return the words of a line without the markup of a heading."""
    words = html.unescape(_TAG.sub(" ", line))
    words = _CLOSING.sub("", words.lstrip("#"))
    return " ".join(words.split())[:_MAX_HEADING]
