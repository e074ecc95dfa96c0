"""Conversion of responses of web servers to text for a model, in linear time."""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Iterator
from contextlib import suppress

__all__ = ["html_text", "is_text_type", "page_text"]

_TEXT_TYPES = re.compile(
    r"text/.*|application/(?:.*[+./-])?(?:json|xml|javascript|ecmascript|yaml|ndjson|jsonl|x-www-form-urlencoded|toml)"
)
_CHARSET = re.compile(r"charset\s*+=\s*+[\"']?+([\w.:-]++)", re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-8|ascii|utf-(?:16|32)(?:-[bl]e)?|iso8859-\d+|cp125\d|cp932|cp949|big5|euc_jp|euc_kr|gb18030|gb2312|gbk|koi8-[ru]"
    r"|mac-roman|shift_jis|tis-620"
)
"""Python names of the accepted character sets. Others, such as utf-7 and punycode, could hide text."""

_OMITTED = re.compile("script|style|template|noscript|svg|iframe|object")
_BLOCKS = re.compile(
    "address|article|aside|blockquote|br|d[dlt]|div|figure|footer|form|h[1-6]|header|hr|li|main|nav|ol|p|pre|section|table"
    "|t[dhr]|title|ul"
)
_TAG = re.compile(r"/?([a-zA-Z][a-zA-Z0-9-]*)")


def is_text_type(content_type: str) -> bool:
    """True if a content type is text or empty."""
    kind = content_type.partition(";")[0].strip().lower()
    return not kind or _TEXT_TYPES.fullmatch(kind) is not None


def page_text(data: bytes | bytearray, content_type: str) -> str:
    """Return bytes as text in the character set of their content type; invalid bytes become U+FFFD."""
    declared = _CHARSET.search(content_type)
    name = "utf-8"
    if declared is not None:
        with suppress(LookupError):
            name = codecs.lookup(declared[1]).name
    if not _CHARSETS.fullmatch(name):
        name = "utf-8"
    return data.decode(name, "replace").removeprefix("\ufeff")


def html_text(source: str) -> str:
    """Return the text of an HTML page, with a line for each block, without scripts, styles, comments and tags."""
    lower = source.lower()
    # A few capital letters become two small letters, which would shift the positions.
    if len(lower) != len(source):
        source = lower
    words = html.unescape("".join(_pieces(source, lower)))
    lines = (" ".join(line.split()) for line in words.split("\n"))
    return "\n".join(line for line in lines if line)


def _pieces(source: str, lower: str) -> Iterator[str]:
    """Yield the text between tags, and a line break for each block. The rest after an unclosed tag is omitted."""
    position = 0
    while (start := source.find("<", position)) >= 0:
        yield source[position:start]
        if source.startswith("<!--", start):
            end = source.find("-->", start + 4)
            position = end + 3
        elif (tag := _TAG.match(source, start + 1)) is None and source[start + 1 : start + 2] not in ("!", "?"):
            # This is text such as a < b, not a tag.
            yield "<"
            end = position = start + 1
        else:
            end = source.find(">", start + 1)
            position = end + 1
            name = tag[1].lower() if tag is not None else ""
            is_opening = source[start + 1] != "/"
            if _BLOCKS.fullmatch(name):
                yield "\n"
            elif _OMITTED.fullmatch(name) and is_opening and end >= 0:
                end = position = lower.find(f"</{name}", position)
        if end < 0:
            return
    yield source[position:]
