"""The bytes of an answer, read as JSON documents: the events of a stream, or one document. Nobody can send too much."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from agentkit.models.http.reply_reader import ProtocolError

if TYPE_CHECKING:
    from httpx2 import Response

__all__ = ["DONE", "bounded", "documents"]

_MAX_DOCUMENT = 32 << 20
"""Bytes of one document, decompressed: what has to be held at once."""
_MAX_STREAM = 512 << 20
"""Bytes of all events of one reply, decompressed."""
_MAX_ERROR = 64 << 10
"""Bytes of what explains an error."""
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
_LONGEST = max(map(len, _FIELDS))
_BLANK = b" \t\r\n\xef\xbb\xbf"
DONE = b"[DONE]"
"""In the place of a document: what says that a stream is over."""


async def documents(response: Response) -> AsyncGenerator[Any]:
    """Yield the decoded JSON of each event; where the answer is no stream, that of the whole of it.

    Whether it is one is seen by how it begins: servers answer a stream request with one completion, and under any
    content type. An event of the type `error` comes as `{"error": ...}`.

    Raises:
        ProtocolError: It is not JSON, or too large.
    """
    # Servers send a stream as JSON, and JSON as a stream, so the content type alone decides nothing.
    claims = response.headers.get("content-type", "").startswith("text/event-stream")
    # Each generator is closed by the one that reads it: the garbage collector would close it later, in a task that
    # nothing waits for.
    async with aclosing(response.aiter_bytes()) as pieces:
        opening = bytearray()
        async for piece in pieces:
            opening += piece
            if not opening.lstrip(_BLANK):
                opening.clear()
            elif len(opening) >= _LONGEST or b"\n" in opening:
                break
        start = bytes(opening).lstrip(_BLANK)
        if start.startswith(_FIELDS) or (claims and start[:1] not in b'{["<'):
            async with aclosing(_events(start, pieces)) as events:
                async for document in events:
                    yield document
        elif start or not claims:
            yield _decoded(await _read_all(start, pieces))


async def _read_all(start: bytes, pieces: AsyncIterator[bytes]) -> bytes:
    whole = [start]
    size = len(start)
    async for piece in pieces:
        size += len(piece)
        _check(size, _MAX_DOCUMENT)
        whole.append(piece)
    return b"".join(whole)


async def _events(start: bytes, pieces: AsyncIterator[bytes]) -> AsyncGenerator[Any]:
    """Yield the data of events."""
    data: list[bytes] = []
    is_error = False
    async with aclosing(_lines(start, pieces)) as lines:
        async for line in lines:
            if line.startswith(b"data:"):
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line.startswith(b"event:"):
                is_error = line[6:].strip() == b"error"
            elif line.startswith(b"error:"):
                # llama.cpp sends a custom field.
                yield _error_document(_decoded(line[6:]))
            elif not line and data:
                for document in _event_documents(data, is_error=is_error):
                    yield document
                data, is_error = [], False
    # Nothing closes the last event of some servers. If the connection was cut, it is half a document.
    with suppress(ProtocolError):
        for document in _event_documents(data, is_error=is_error):
            yield document


def _event_documents(data: list[bytes], *, is_error: bool) -> list[Any]:
    """Return the documents in the lines of an event; several if a server leaves out the empty line between events."""
    if not data:
        return []
    if data[0].startswith(DONE):
        return [DONE]
    try:
        documents = [_decoded(b"\n".join(data))]
    except ProtocolError:
        if len(data) == 1:
            raise
        documents = [DONE if line.startswith(DONE) else _decoded(line) for line in data]
    if is_error:
        documents = [document if document is DONE else _error_document(document) for document in documents]
    return documents


def _error_document(document: Any) -> Any:
    if isinstance(document, dict) and "error" in document:
        return document
    return {"error": document}


async def _lines(start: bytes, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield lines, without their ends: LF, CR LF or CR. A last line without an end is yielded too."""
    held: list[bytes] = []
    size = total = 0

    def cut(piece: bytes) -> list[bytes]:
        nonlocal size, total
        size, total = size + len(piece), total + len(piece)
        _check(size, _MAX_DOCUMENT)
        _check(total, _MAX_STREAM)
        held.append(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return []
        found = b"".join(held).splitlines(keepends=True)
        held.clear()
        # The last line is not whole, or ends in a CR whose LF may follow.
        if not found[-1].endswith(b"\n"):
            held.append(found.pop())
        size = sum(map(len, held))
        return [line.rstrip(b"\r\n") for line in found]

    for line in cut(start):
        yield line
    async for piece in pieces:
        for line in cut(piece):
            yield line
    for line in b"".join(held).splitlines():
        yield line


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise ProtocolError(f"the answer is larger than {limit >> 20} MiB")


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise ProtocolError("JSON nested too deep") from None
    except ValueError as error:
        # Bytes that are no UTF-8 and numbers of thousands of digits are ValueErrors, too.
        shown = data[:80].decode("utf-8", "replace")
        raise ProtocolError(f"not JSON ({error}): {shown!r}") from None


def _no_number(word: str) -> None:
    """Read NaN and Infinity, which are no JSON: what is kept of a reply has to go back with the next request."""


def _finite(text: str) -> float | None:
    value = float(text)
    if math.isfinite(value):
        return value
    return None


async def bounded(response: Response) -> None:
    """Limit what is read of an answer; for the event hooks of a client.

    What explains an error is cut; a longer answer is refused by who reads it.
    """
    from httpx2 import AsyncByteStream
    from httpx2 import Response as Raw

    stream = response.stream
    inner = Raw(response.status_code, headers=response.headers, stream=stream)
    limit = _MAX_ERROR
    if response.status_code < 300:
        limit = _MAX_STREAM + 1

    class Bounded(AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = limit
            async with aclosing(inner.aiter_bytes()) as pieces:
                async for piece in pieces:
                    yield piece[:left]
                    left -= len(piece)
                    if left <= 0:
                        return

        async def aclose(self) -> None:
            await stream.aclose()  # type: ignore[union-attr]

    # The limit counts decompressed bytes, so the client must not decompress them again.
    response.headers.pop("content-encoding", None)
    response.stream = Bounded()
