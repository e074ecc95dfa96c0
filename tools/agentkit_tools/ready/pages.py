"""Conversion of responses of web servers to text for a model, in linear time."""

from __future__ import annotations

import re

from agentkit_prompts.pages.encodings import declared_encoding, encoding_of_label, marked_encoding
from agentkit_prompts.pages.page_reader import LongTagError, page_text

_TEXT_TYPES = re.compile(
    r"text/.*|application/(?:.*[+./-])?(?:json|xml|javascript|ecmascript|yaml|ndjson|jsonl|x-www-form-urlencoded|toml)"
)
_CHARSET = re.compile(r"charset\s*+=\s*+[\"']?+([\w.:-]++)", re.IGNORECASE)


def is_text_type(content_type: str) -> bool:
    """True if a content type is text or empty."""
    kind = content_type.partition(";")[0].strip().lower()
    return not kind or _TEXT_TYPES.fullmatch(kind) is not None


def decoded_page(data: bytes | bytearray, content_type: str) -> str:
    """Return bytes as text; invalid bytes become U+FFFD.

    The encoding is given by a byte order mark, else by the content type, else by the page, else it is UTF-8. Labels
    that browsers do not know are skipped: encodings such as utf-7 and punycode could hide text.
    """
    marked, length = marked_encoding(data)
    if marked is not None:
        return data[length:].decode(marked, "replace")
    declared = _CHARSET.search(content_type)
    encoding = None
    if declared is not None:
        encoding = encoding_of_label(declared[1])
    return data.decode(encoding or declared_encoding(bytes(data)), "replace")


def html_text(source: str) -> str:
    """Return the text of an HTML page as a person sees it, with a line or more for each block."""
    try:
        return page_text(source)
    except LongTagError as error:
        return f"[the page {error}]"
