"""HTTP client of a session with an MCP server, with limits for the size and the time of responses.

The SDK continues to read a response that is not awaited any more. It sends the HTTP requests of a message in the
context (of `contextvars`) of the sender, from which this client finds the message of a request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache, partial
from time import monotonic
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

T = TypeVar("T")

_CONNECT_SECONDS = 30.0
_SILENCE_SECONDS = 300.0
_NOTIFICATION_SECONDS = 10.0
"""Maximum seconds until the response to a notification starts, during which no other message is sent."""
_CLOSE_SECONDS = 1.0
"""Maximum seconds until the response to the end of a session starts."""
_REOPEN_SECONDS = 0.5
"""Minimum seconds between two times at which a stream is opened again."""
_EVENT_END = re.compile(rb"\n\n|\r\r|\r\n\r\n")


class _Exchange:
    """HTTP requests and responses of one message. The exchange of a request can be ended by its cancellation."""

    def __init__(self, expects_result: bool = True) -> None:
        self.expects_result = expects_result
        self._ended = False
        self._scope: anyio.CancelScope | None = None

    def end(self) -> None:
        self._ended = True
        if self._scope is not None:
            self._scope.cancel()

    async def wait(self, work: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Return the value of `work()`, after other tasks of the thread had a turn.

        Raises:
            TimeoutError: The exchange has ended, or `work` takes too long.
        """
        with anyio.move_on_after(seconds) as self._scope:
            if self._ended:
                self._scope.cancel()
            await anyio.lowlevel.checkpoint()
            return await work()
        raise TimeoutError


_EXCHANGE: ContextVar[_Exchange | None] = ContextVar("agentkit_mcp_exchange", default=None)


class HTTPMessages:
    """Stream of messages from the SDK. The cancellation of a request ends its HTTP exchange."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._exchanges: WeakValueDictionary[RequestId, _Exchange] = WeakValueDictionary()

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message."""
        message = item.message
        exchange = _Exchange(expects_result=isinstance(message, JSONRPCRequest))
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
        """Close the stream."""
        await self._inner.aclose()

    async def __aenter__(self) -> HTTPMessages:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class HTTPClient(httpx2.AsyncClient):
    """HTTP client that reads a response while its result is awaited, up to the limits of size and time.

    Args:
        headers: Headers of all requests.
        auth: User and password, or an authentication of the SDK.
        pace: Pace of the session.
        max_seconds: Maximum seconds until the response to a request starts, with the requests of `auth`.
    """

    def __init__(
        self,
        headers: Mapping[str, str],
        auth: httpx2.Auth | tuple[str, str] | None,
        pace: CPUPace,
        *,
        max_seconds: float = _SILENCE_SECONDS,
    ) -> None:
        super().__init__(
            auth=auth,
            verify=_certificates(),
            headers={"Accept-Encoding": "identity", **headers},
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_SILENCE_SECONDS),
            event_hooks={"request": [self._pause, _watch_handshake], "response": [self._limit]},
        )
        self._pace = pace
        self._max_seconds = max_seconds
        self._opened_again = 0.0

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Return the response, or a response of status 408 if only informational responses (1xx) arrive in time."""
        exchange = _EXCHANGE.get() or _Exchange()
        seconds = self._max_seconds
        if request.method == "DELETE":
            seconds = _CLOSE_SECONDS
        elif request.method == "GET":
            seconds = _CONNECT_SECONDS
            await self._pace.rest()
        elif request.method == "POST" and not exchange.expects_result:
            seconds = _NOTIFICATION_SECONDS
        try:
            return await exchange.wait(partial(super().send, request, **options), seconds)
        except TimeoutError:
            return httpx2.Response(httpx2.codes.REQUEST_TIMEOUT, request=request)

    async def _pause(self, request: httpx2.Request) -> None:
        """Limit how often streams are opened again, also if a server closes each stream and requests no delay."""
        if "Last-Event-ID" in request.headers:
            seconds = self._opened_again + _REOPEN_SECONDS - monotonic()
            self._opened_again = monotonic()
            if seconds > 0:
                await asyncio.sleep(seconds)
                self._opened_again = monotonic()

    async def _limit(self, response: httpx2.Response) -> None:
        """Limit the size of a response, also after decompression."""
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        exchange = _EXCHANGE.get() or _Exchange()
        response.stream = _Limited(response.headers, response.stream, exchange, self._pace)


@lru_cache(maxsize=1)
def _certificates() -> SSLContext:
    """Read the certificates once, because this takes most of the time to create a client."""
    return httpx2.create_ssl_context()


async def _watch_handshake(request: httpx2.Request) -> None:
    request.extensions["trace"] = CutHandshake()


class _Limited(httpx2.AsyncByteStream):
    """Body of a response, up to the limits, until its exchange ends."""

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
            raise httpx2.StreamError(f"the response is compressed ({self._encoding[:20]}) without a request for it")
        rest, values, before = MAX_INPUT_BYTES, 0, b""
        pieces = aiter(self._inner)
        while (piece := await self._next(pieces)) is not None:
            rest -= len(piece)
            if rest < 0:
                raise httpx2.StreamError(f"the response has more than {MAX_INPUT_BYTES:,} bytes")
            values += values_in(piece)
            if values > MAX_VALUES:
                raise httpx2.StreamError(f"the response has more than {MAX_VALUES:,} values")
            # Each event is a separate message.
            if self._is_events and _EVENT_END.search(before + piece):
                values = 0
            before = piece[-3:]
            yield piece

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        """Return the next piece, or None after the last piece."""
        await self._pace.rest()
        try:
            return await self._exchange.wait(partial(anext, pieces, None))
        except TimeoutError:
            text = "the result is not awaited any more"
            # The SDK would open the stream again after any other error than SSEError.
            if self._is_events:
                raise httpx2.SSEError(text) from None
            raise httpx2.StreamError(text) from None

    async def aclose(self) -> None:
        """Close the response, and its connection unless the response was read completely."""
        await self._inner.aclose()
