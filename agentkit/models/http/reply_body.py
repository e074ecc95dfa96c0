"""Reader of response bodies: JSON documents from server-sent events or from one document, with size limits."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from agentkit.models.http.reader import ProtocolError

if TYPE_CHECKING:
    from httpx2 import Response

_MAX_DOCUMENT = 32 << 20
"""Maximum decompressed bytes of one document, which is read into memory."""
_MAX_STREAM = 512 << 20
"""Maximum decompressed bytes of all events of one reply."""
_MAX_ERROR = 64 << 10
"""Maximum bytes of the body of an error."""
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
_LONGEST = max(map(len, _FIELDS))
_BLANK = b" \t\r\n\xef\xbb\xbf"
_PINGS = ("ping", "heartbeat", "keepalive", "keep-alive", "keep_alive")
"""Names of events that keep the connection open; servers also send a name as the data or as a key."""
_PING_KEYS = frozenset(("type", "timestamp", "time", "cost", "sequence_number", *_PINGS))
_NAMELESS_ERROR = {"error": True}
DONE = b"[DONE]"
"""Marker of the end of a stream, yielded instead of a document."""


async def documents(response: Response) -> AsyncGenerator[Any]:
    """Yield the decoded JSON of each event of a stream, or of the whole response if it is not a stream.

    Events without content, and pings, keep the connection open: they are left out.

    The first bytes decide: servers send one completion in reply to a request for a stream, with any content type. An
    event of the type `error` is yielded as `{"error": ...}`.

    Raises:
        ProtocolError: The response is too large or not JSON.
    """
    # Servers send a stream as JSON, and JSON as a stream, so the content type alone is not enough.
    is_declared_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    # Each generator is closed by its reader: the garbage collector would close it later, in a task without an owner.
    async with aclosing(response.aiter_bytes()) as pieces:
        start = await _first_bytes(pieces)
        if start.startswith(_FIELDS) or (is_declared_stream and start[:1] not in b'{["<'):
            async with aclosing(_events(start, pieces)) as events:
                async for document in events:
                    yield document
        elif start or not is_declared_stream:
            yield decoded(await _read_all(start, pieces))


async def json_lines(response: Response) -> AsyncGenerator[Any]:
    """Yield the decoded JSON of each line of a response.

    Raises:
        ProtocolError: The response is too large, or a line is not JSON.
    """
    # Lines of bytes: lines of text also end at separators that JSON texts can contain, such as U+2028.
    async with aclosing(response.aiter_bytes()) as pieces, aclosing(_lines(b"", pieces)) as lines:
        async for line in lines:
            if line.strip():
                yield decoded(line)


async def _first_bytes(pieces: AsyncIterator[bytes]) -> bytes:
    """Return the first bytes that are not blank, enough to recognise a field of a stream."""
    start = bytearray()
    async for piece in pieces:
        start += piece
        if not start.lstrip(_BLANK):
            start.clear()
        elif len(start) >= _LONGEST or b"\n" in start:
            break
    return bytes(start).lstrip(_BLANK)


async def _read_all(start: bytes, pieces: AsyncIterator[bytes]) -> bytes:
    whole = [start]
    size = len(start)
    async for piece in pieces:
        size += len(piece)
        _check_size(size, _MAX_DOCUMENT)
        whole.append(piece)
    return b"".join(whole)


async def _events(start: bytes, pieces: AsyncIterator[bytes]) -> AsyncGenerator[Any]:
    """Yield the documents of all events."""
    data: list[bytes] = []
    name, size = b"", 0
    async with aclosing(_lines(start, pieces)) as lines:
        async for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
                # The size of each line is limited too, but an event can have any number of lines.
                size += len(line)
                _check_size(size, _MAX_DOCUMENT)
            elif line.startswith(b"event:"):
                name = line[6:].strip().lower()
            elif line.startswith(b"error:"):
                # llama.cpp sends a custom field.
                yield _error_document(decoded(line[6:]))
            elif not line:
                for document in _event_documents(data, name):
                    yield document
                data, name, size = [], b"", 0
    # Some servers do not close the last event. If the connection was cut, the event is incomplete and skipped.
    with suppress(ProtocolError):
        for document in _event_documents(data, name):
            yield document


def _event_documents(data: list[bytes], name: bytes) -> list[Any]:
    """Return the documents of an event: several if a server omits the empty line between events, none for a ping."""
    is_error = name == b"error"
    data = [line for line in data if not _is_ping_line(line)]
    if name.decode("ascii", "replace") in _PINGS:
        return []
    if not data:
        return [_NAMELESS_ERROR] * is_error
    if data[0].startswith(DONE):
        return [DONE]
    try:
        documents = [decoded(b"\n".join(data))]
    except ProtocolError:
        if is_error:
            documents = [b"\n".join(data).decode("utf-8", "replace")]
        elif len(data) == 1:
            raise
        else:
            documents = [_document_or_done(line) for line in data]
    if is_error:
        return [_error_document(document) for document in documents]
    return [document for document in documents if not _is_ping(document)]


def _is_ping_line(line: bytes) -> bool:
    """True for data without content: white space, the name of a ping, or its comment, which gateways send as data."""
    text = line.strip(b' \t"').lower()
    return not text or text.startswith(b":") or text.decode("ascii", "replace") in _PINGS


def _is_ping(document: Any) -> bool:
    """True for a document without content: pings of servers differ."""
    if isinstance(document, dict) and document.keys() <= _PING_KEYS:
        return not document or document.get("type") in _PINGS or not document.keys().isdisjoint(_PINGS)
    return document is None or document == "" or document == []


def _document_or_done(line: bytes) -> Any:
    if line.startswith(DONE):
        return DONE
    return decoded(line)


def _error_document(document: Any) -> Any:
    if document is DONE or (isinstance(document, dict) and "error" in document):
        return document
    return {"error": document}


async def _lines(start: bytes, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield lines without their line ends: LF, CR LF or CR. A last line without a line end is yielded too."""
    unfinished: list[bytes] = []
    size = total = 0

    def split(piece: bytes) -> list[bytes]:
        nonlocal size, total
        size, total = size + len(piece), total + len(piece)
        _check_size(size, _MAX_DOCUMENT)
        _check_size(total, _MAX_STREAM)
        unfinished.append(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return []
        lines = b"".join(unfinished).splitlines(keepends=True)
        unfinished.clear()
        # The last line is incomplete, or ends in a CR whose LF may follow.
        if not lines[-1].endswith(b"\n"):
            unfinished.append(lines.pop())
        size = sum(map(len, unfinished))
        return [line.rstrip(b"\r\n") for line in lines]

    for line in split(start):
        yield line
    async for piece in pieces:
        for line in split(piece):
            yield line
    for line in b"".join(unfinished).splitlines():
        yield line


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise ProtocolError(f"the response is larger than {limit >> 20} MiB")


def decoded(data: bytes) -> Any:
    """Return the value of a JSON text; None replaces NaN and infinite numbers.

    Raises:
        ProtocolError: The text is not JSON.
    """
    try:
        return json.loads(data, parse_constant=_constant, parse_float=_finite)
    except RecursionError:
        raise ProtocolError("JSON nested too deep") from None
    except ValueError as error:
        # Invalid UTF-8 and numbers of thousands of digits are ValueErrors, too.
        excerpt = data[:80].decode("utf-8", "replace")
        raise ProtocolError(f"not JSON ({error}): {excerpt!r}") from None


def _constant(word: str) -> None:
    """Read NaN and Infinity as None: they are not JSON, and unknown fields of a reply go back with the next request."""


def _finite(text: str) -> float | None:
    value = float(text)
    if math.isfinite(value):
        return value
    return None


async def bounded(response: Response) -> None:
    """Limit the bytes of a response: an event hook of a client.

    The body of an error is truncated; the reader of a reply refuses a larger reply.
    """
    from httpx2 import AsyncByteStream
    from httpx2 import Response as RawResponse

    stream = response.stream
    inner = RawResponse(response.status_code, headers=response.headers, stream=stream)
    limit = _MAX_ERROR
    if response.status_code < 300:
        limit = _MAX_STREAM + 1

    class Bounded(AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            remaining = limit
            async with aclosing(inner.aiter_bytes()) as pieces:
                async for piece in pieces:
                    yield piece[:remaining]
                    remaining -= len(piece)
                    if remaining <= 0:
                        return

        async def aclose(self) -> None:
            await stream.aclose()  # type: ignore[union-attr]

    # The limit counts decompressed bytes, so the client must not decompress them again.
    response.headers.pop("content-encoding", None)
    response.stream = Bounded()
