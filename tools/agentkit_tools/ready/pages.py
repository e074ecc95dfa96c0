"""What a server sends, as text a model can read. Everything here takes time in proportion to its input."""

from __future__ import annotations

import codecs
import html
import re

__all__ = ["html_text", "is_text_type", "page_text"]

_TEXT_TYPES = re.compile(
    r"text/.*|application/(?:.*[+./-])?(?:json|xml|javascript|ecmascript|yaml|ndjson|jsonl|x-www-form-urlencoded|toml)"
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-8|ascii|utf-(?:16|32)(?:-[bl]e)?|iso8859-\d+|cp125\d|cp932|cp949|big5|euc_jp|euc_kr|gb18030|gb2312|gbk|koi8-[ru]"
    r"|mac-roman|shift_jis|tis-620"
)
"""Character sets of pages, as Python names them; utf-7, punycode and others would be surprises."""

_LEFT_OUT = re.compile("script|style|template|noscript|svg|iframe|object")
_BLOCKS = re.compile(
    "address|article|aside|blockquote|br|d[dlt]|div|figure|footer|form|h[1-6]|header|hr|li|main|nav|ol|p|pre|section|table"
    "|t[dhr]|title|ul"
)
_TAG = re.compile(r"/?([a-zA-Z][a-zA-Z0-9-]*)")


def is_text_type(content_type: str) -> bool:
    """Return whether a content type means text, or is empty."""
    kind = content_type.partition(";")[0].strip().lower()
    return not kind or _TEXT_TYPES.fullmatch(kind) is not None


def page_text(data: bytes, content_type: str) -> str:
    """Return bytes as text in the character set of their content type; invalid bytes become U+FFFD."""
    declared = _CHARSET.search(content_type)
    try:
        name = codecs.lookup(declared[1]).name if declared else "utf-8"
    except LookupError:
        name = "utf-8"
    if not _CHARSETS.fullmatch(name):
        name = "utf-8"
    return data.decode(name, "replace").removeprefix("\ufeff")


def html_text(source: str) -> str:
    """Return the words of an HTML page, a line per block; no scripts, styles, comments or tags."""
    pieces: list[str] = []
    lower = source.lower()
    # A few capital letters become two small ones, which would shift the positions.
    if len(lower) != len(source):
        source = lower
    at = 0
    while (tag := source.find("<", at)) >= 0:
        pieces.append(source[at:tag])
        if source.startswith("<!--", tag):
            end = source.find("-->", tag + 4)
            at = end + 3
        else:
            named = _TAG.match(source, tag + 1)
            if named is None and source[tag + 1 : tag + 2] not in ("!", "?"):
                # It is not a tag but text such as a < b.
                pieces.append("<")
                at = tag + 1
                continue
            end = source.find(">", tag + 1)
            at = end + 1
            name = named[1].lower() if named is not None else ""
            if _LEFT_OUT.fullmatch(name) and source[tag + 1] != "/" and end >= 0:
                end = lower.find(f"</{name}", at)
                at = end
            elif _BLOCKS.fullmatch(name):
                pieces.append("\n")
        # The tag does not end, so the rest is not shown.
        if end < 0:
            break
    else:
        pieces.append(source[at:])
    lines = (" ".join(line.split()) for line in html.unescape("".join(pieces)).split("\n"))
    return "\n".join(line for line in lines if line)
