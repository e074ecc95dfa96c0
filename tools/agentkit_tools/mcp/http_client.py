"""The HTTP client of a session with an MCP server: how much is read of an answer, and for how long.

The SDK reads on when nobody waits for an answer any more. Whatever it sends because of a message, it sends in the
context of who wrote that message: so a request of HTTP is known to belong to one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel
import httpx2
from mcp_types import JSONRPCNotification, JSONRPCRequest

from agentkit_prompts.limits import MAX_INPUT_BYTES
from agentkit_prompts.system.cut_handshakes import CutHandshake
from agentkit_tools.mcp.bounded_lines import MAX_VALUES, values_in
from agentkit_tools.mcp.cpu_pace import CPUPace

if TYPE_CHECKING:
    from ssl import SSLContext

    from mcp.shared.message import SessionMessage
    from mcp_types import RequestId

__all__ = ["HTTPClient", "HTTPMessages"]

T = TypeVar("T")

_CONNECT_SECONDS = 30.0
_SILENCE_SECONDS = 300.0
_TOLD_SECONDS = 10.0
"""How long a server may take to begin its answer to what asks for nothing: no other message is sent meanwhile."""
_BYE_SECONDS = 1.0
"""How long it may take to take note of the end of a session."""
_AGAIN_SECONDS = 0.5
_EVENT_END = re.compile(rb"\n\n|\r\r|\r\n\r\n")


class _Exchange:
    """What is sent and read over HTTP because of one message. If the message asks for something, it can be ended."""

    def __init__(self, asks: bool = True) -> None:
        self.asks = asks
        self._ended = False
        self._scope: anyio.CancelScope | None = None

    def end(self) -> None:
        self._ended = True
        if self._scope is not None:
            self._scope.cancel()

    async def wait(self, work: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Return what `work()` returns. What else the thread has to do comes first, so that nothing keeps it to itself.

        Raises:
            TimeoutError: The exchange has ended, or it takes too long.
        """
        with anyio.move_on_after(seconds) as self._scope:
            if self._ended:
                self._scope.cancel()
            await anyio.lowlevel.checkpoint()
            return await work()
        raise TimeoutError


_EXCHANGE: ContextVar[_Exchange | None] = ContextVar("agentkit_mcp_exchange", default=None)


class HTTPMessages:
    """Where the SDK writes messages. One that cancels a request ends what is sent and read because of it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._exchanges: WeakValueDictionary[RequestId, _Exchange] = WeakValueDictionary()

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message."""
        message = item.message
        exchange = _Exchange(asks=isinstance(message, JSONRPCRequest))
        if isinstance(message, JSONRPCRequest):
            self._exchanges[message.id] = exchange
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            cancelled = self._exchanges.get((message.params or {}).get("requestId", ""))
            if cancelled is not None:
                cancelled.end()
        token = _EXCHANGE.set(exchange)
        try:
            await self._inner.send(item)
        finally:
            _EXCHANGE.reset(token)

    async def aclose(self) -> None:
        """Say that there will be no more."""
        await self._inner.aclose()

    async def __aenter__(self) -> HTTPMessages:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class HTTPClient(httpx2.AsyncClient):
    """Waits for answers as long as somebody wants them, and reads no more of them than is useful."""

    def __init__(self, headers: Mapping[str, str], auth: tuple[str, str] | None, pace: CPUPace) -> None:
        super().__init__(
            auth=auth,
            verify=_certificates(),
            headers={"Accept-Encoding": "identity", **headers},
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_SILENCE_SECONDS),
            event_hooks={"request": [_pause, _watch_handshake], "response": [self._limit]},
        )
        self._pace = pace

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Return the answer, or one of the status 408 where none begins in time: 1xx after 1xx is not one yet."""
        exchange = _EXCHANGE.get() or _Exchange()
        seconds = _SILENCE_SECONDS
        if request.method == "DELETE":
            seconds = _BYE_SECONDS
        elif request.method == "GET":
            seconds = _CONNECT_SECONDS
            await self._pace.rest()
        elif request.method == "POST" and not exchange.asks:
            seconds = _TOLD_SECONDS
        try:
            return await exchange.wait(partial(super().send, request, **options), seconds)
        except TimeoutError:
            return httpx2.Response(httpx2.codes.REQUEST_TIMEOUT, request=request)

    async def _limit(self, response: httpx2.Response) -> None:
        """Make an answer fail that is larger than anything useful, or could become so when it is unpacked."""
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        exchange = _EXCHANGE.get() or _Exchange()
        response.stream = _Limited(response.headers, response.stream, exchange, self._pace)


@lru_cache(maxsize=1)
def _certificates() -> SSLContext:
    """Read the certificates once: it is nearly all that a client costs."""
    return httpx2.create_ssl_context()


async def _pause(request: httpx2.Request) -> None:
    """Wait before a stream is opened again, also where a server ends each at once and says not to wait."""
    if "Last-Event-ID" in request.headers:
        await asyncio.sleep(_AGAIN_SECONDS)


async def _watch_handshake(request: httpx2.Request) -> None:
    request.extensions["trace"] = CutHandshake()


class _Limited(httpx2.AsyncByteStream):
    """The body of an answer, up to what may be read of it, until its exchange ends."""

    def __init__(
        self, headers: httpx2.Headers, inner: httpx2.AsyncByteStream, exchange: _Exchange, pace: CPUPace
    ) -> None:
        self._encoding = headers.get("Content-Encoding", "identity")
        self._is_events = headers.get("Content-Type", "").startswith("text/event-stream")
        self._inner = inner
        self._exchange = exchange
        self._pace = pace

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding.lower() != "identity":
            raise httpx2.StreamError(f"the answer is packed ({self._encoding[:20]}), which was not asked for")
        left, values, before = MAX_INPUT_BYTES, 0, b""
        pieces = aiter(self._inner)
        while (piece := await self._next(pieces)) is not None:
            left -= len(piece)
            if left < 0:
                raise httpx2.StreamError(f"the answer has more than {MAX_INPUT_BYTES:,} bytes")
            values += values_in(piece)
            if values > MAX_VALUES:
                raise httpx2.StreamError(f"the answer has more than {MAX_VALUES:,} values")
            # Each event is a separate message.
            if self._is_events and _EVENT_END.search(before + piece):
                values = 0
            before = piece[-3:]
            yield piece

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        """Return the next piece; None is the end."""
        await self._pace.rest()
        try:
            return await self._exchange.wait(partial(anext, pieces, None))
        except TimeoutError:
            text = "nobody waits for the answer any more"
            # The SDK would open the stream again after any other error.
            if self._is_events:
                raise httpx2.SSEError(text) from None
            raise httpx2.StreamError(text) from None

    async def aclose(self) -> None:
        """Close the answer, and its connection unless it was read to its end."""
        await self._inner.aclose()
