"""Reader of EML: subject, people and date, the text of the message, text attachments and attached messages."""

from __future__ import annotations

import re
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import EmailPolicy
from typing import Any, BinaryIO

from agentkit_memory.ingest.isolated.written_rows import (
    Unreadable,
    write,
    write_block,
    write_html,
    write_text,
    write_title,
)
from agentkit_prompts.pages.encodings import encoding_of_label

_HEADERS = ("Subject", "From", "To", "Cc", "Bcc", "Date")
_MAX_DEPTH = 20
_MAX_PARTS = 2000
_MAX_HEADERS = 10_000
"""Maximum headers of a message and its parts together."""
_MAX_HEADER = 10_000
"""Maximum characters of a header that are shown."""
_MAX_PARSED = 20_000
"""Maximum characters of a header that are parsed: the library takes quadratic time."""
_EXTENDED = re.compile(r";\s*+[^\s;=*]*+\*[^;]*+")
"""A parameter of a header that names its encoding, as in RFC 2231."""
_CHARSETS = {**dict.fromkeys(("us-ascii", "ascii", "ansi_x3.4-1968"), "utf-8"), "utf-16": "utf-16"}
"""Encodings of charsets that e-mails use in another way than web pages."""


class _LenientPolicy(EmailPolicy):
    """Policy of the parser that shows a header as it was written if the library fails on it."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        """Return a header, without extended parameters if the library cannot parse it."""
        value = value[:_MAX_PARSED]
        try:
            return super().header_fetch_parse(name, value)
        except MemoryError:
            raise
        # The library raises errors of many classes for unknown encodings and for malformed addresses.
        except Exception:
            return _EXTENDED.sub("", value)


class _Limits:
    """Counts the parts and the headers of a file while the library parses it, which takes most of the time.

    Raises:
        Unreadable: A part or a header is one too many.
    """

    def __init__(self) -> None:
        self._parts = 0
        self._headers = 0

    def new_part(self, policy: Any = None) -> EmailMessage:
        """Return an empty part, of which the library reads headers and content."""
        self._parts += 1
        # The parser tries the function once.
        if self._parts > _MAX_PARTS + 1:
            raise Unreadable(f"has more than {_MAX_PARTS:,} parts: it may be a bomb; split it")
        return _Part(self, policy)

    def count_header(self) -> None:
        """Count a header."""
        self._headers += 1
        if self._headers > _MAX_HEADERS:
            raise Unreadable(f"has more than {_MAX_HEADERS:,} headers: it may be a bomb; remove headers, or split it")


class _Part(EmailMessage):
    """A part whose headers are counted."""

    def __init__(self, limits: _Limits, policy: Any) -> None:
        super().__init__(policy)
        self._limits = limits

    def set_raw(self, name: str, value: str) -> None:
        """Add a header that the parser read."""
        self._limits.count_header()
        super().set_raw(name, value)


def read(stream: BinaryIO) -> None:
    """Write the rows of a file."""
    content = stream.read()
    # Files of the program mbox and of some exports start with a line "From ", which is not a header.
    message = BytesParser(_Limits().new_part, policy=_LenientPolicy()).parsebytes(content.lstrip())
    if not isinstance(message, EmailMessage) or not message.keys():
        raise Unreadable("is not an e-mail: it has no headers")
    write_title(str(message["Subject"] or ""))
    reader = _Reader()
    reader.message(message, 0)


class _Reader:
    def __init__(self) -> None:
        self._messages = 0

    def message(self, message: EmailMessage, depth: int) -> None:
        """Write a message and the messages that are attached to it."""
        self._messages += 1
        if depth > _MAX_DEPTH:
            write("problem", f"message {self._messages} is attached more than {_MAX_DEPTH} levels deep")
            return
        write("section", {"message": self._messages})
        subject = _header(message, "Subject")
        if subject:
            write_block("heading", subject + "\n\n", 1)
        lines = [f"{name}: {value}" for name in _HEADERS[1:] if (value := _header(message, name))]
        if lines:
            write_block("text", "\n".join(lines) + "\n\n")
        self._part(message, depth)

    def _part(self, part: EmailMessage, depth: int) -> None:
        kind = part.get_content_type()
        if depth > _MAX_DEPTH:
            write("problem", f"has parts that are nested more than {_MAX_DEPTH} levels deep")
        elif kind == "message/rfc822":
            for inner in _inner(part):
                self.message(inner, depth + 1)
        elif kind == "multipart/alternative":
            self._alternative(part, depth)
        elif part.is_multipart():
            for inner in _inner(part):
                self._part(inner, depth + 1)
        elif kind.startswith("text/"):
            self._text(part, kind)
        elif kind not in ("application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"):
            name = part.get_filename() or kind
            advice = "not read; save the attachment as a file, and ingest it"
            if part.get_content_disposition() != "attachment" and part.get_content_maintype() == "image":
                advice = "an image without text"
            write("gap", "attachment", name[:200], advice)

    def _alternative(self, part: EmailMessage, depth: int) -> None:
        """Write the last alternative that is readable: senders put the richest form last."""
        choices = _inner(part)
        for wanted in ("text/html", "multipart/", "text/plain", ""):
            for inner in reversed(choices):
                if inner.get_content_type().startswith(wanted) and _has_text(inner):
                    self._part(inner, depth + 1)
                    return
        for inner in choices[:1]:
            self._part(inner, depth + 1)

    def _text(self, part: EmailMessage, kind: str) -> None:
        text, is_decoded = _decoded(part)
        name = part.get_filename()
        if not is_decoded:
            write("problem", f"part {name or kind!r} has an unknown encoding {part.get_content_charset()!r}")
        if name:
            write_block("text", f"[attachment {name[:200]}]\n\n")
        if kind == "text/html":
            write_html(text)
        elif kind in ("text/calendar", "text/plain", "text/enriched", "text/markdown") or name or text.strip():
            write_text(text.strip() + "\n\n")


def _inner(part: EmailMessage) -> list[EmailMessage]:
    payload = part.get_payload()
    if not isinstance(payload, list):
        return []
    return [each for each in payload if isinstance(each, EmailMessage)]


def _has_text(part: EmailMessage) -> bool:
    if part.is_multipart():
        return any(_has_text(each) for each in _inner(part))
    return part.get_content_maintype() == "text" and bool(_decoded(part)[0].strip())


def _decoded(part: EmailMessage) -> tuple[str, bool]:
    """Return the text of a part, and False if its encoding is unknown and its bytes are replaced."""
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return "", True
    charset = (part.get_content_charset() or "utf-8").lower()
    try:
        return content.decode(_CHARSETS.get(charset) or encoding_of_label(charset) or charset), True
    # A charset with a NUL character is a ValueError.
    except (LookupError, ValueError):
        pass
    try:
        # Programs declare ASCII or an invalid charset and send UTF-8. Escape sequences belong to another encoding.
        return content.decode("utf-8"), b"\x1b" not in content
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace"), charset in ("us-ascii", "utf-8", "iso-8859-1", "windows-1252")


def _header(message: EmailMessage, name: str) -> str:
    """Return the values of a header, which a message can repeat. A long value is cut, and reported."""
    texts: list[str] = []
    size = 0
    for key, raw in message.raw_items():
        if key.lower() != name.lower():
            continue
        if size + len(raw) > _MAX_HEADER:
            write("gap", "header", name, f"longer than {_MAX_HEADER:,} characters, cut")
        texts.append(" ".join(str(message.policy.header_fetch_parse(key, raw)).split()))
        size += len(raw)
        if size > _MAX_HEADER:
            break
    return ", ".join(texts)[:_MAX_HEADER]
