"""Request bodies with limits, JSON answers and streams of events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from agentkit.ground.graceful_shutdown.ended_requests import STOPPED
from agentkit.ground.request_json import request_json
from agentkit.runs.run_rows import json_text
from agentkit.server.request_runs.request_errors import server_error
from agentkit.server.server_errors import BadRequest, ServerError, ServerFull, TooLarge, Unprocessable, Unsupported
from agentkit.server.server_options import ServerOptions
from agentkit_prompts.invalid_values import JSON_WORDS, invalid_values, json_value

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
_log = logging.getLogger("agentkit.server")
_HEARTBEAT = b": still here\n\n"
_MAX_PROBLEMS = 50


class JSONAnswer(Response):
    """A JSON answer."""

    media_type = "application/json"

    def __init__(self, data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(json_text(data).encode(), status, headers)


def error_answer(error: ServerError) -> JSONAnswer:
    """Return an error as an answer in OpenAI's format."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONAnswer(error.body, error.status, headers)


async def read_body(request: Request, options: ServerOptions) -> bytes:
    """Return the body of a request.

    Raises:
        TooLarge: The body is longer than `body_bytes`.
        BadRequest: The body did not arrive within `body_seconds`.
    """
    limit = options.body_bytes
    length = request.headers.get("content-length")
    # 20 digits are more than any limit; `int` of a longer header would take noticeable time.
    if length is not None and length.isdecimal() and int(length[:20]) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(options.body_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
    except TimeoutError:
        raise BadRequest(
            f"the body did not arrive within {options.body_seconds:g} seconds", code="body_timeout"
        ) from None
    return b"".join(chunks)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is longer than the limit of {limit:,} bytes", code="body_too_large")


def has_body(request: Request) -> bool:
    """True if the headers of a request announce a body or its content type."""
    headers = request.headers
    return "content-type" in headers or "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def read_json(request: Request, options: ServerOptions) -> Any:
    """Return the JSON body of a request.

    Raises:
        Unsupported: The content type is not JSON.
        BadRequest: The body is invalid JSON, has too many values, or a number that overflows a float.
        TooLarge: The body is longer than `body_bytes`.
    """
    # A web page can send other content types to any server without a preflight request of the browser.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Unsupported(f"expected Content-Type: application/json, got {kind or 'none'!r:.80}", code="media_type")
    body = await read_body(request, options)
    try:
        return request_json(body)
    except ValueError as error:
        raise BadRequest(f"invalid JSON in the body: {error}", code="invalid_json") from None


def validated(model: type[M], data: Any) -> M:
    """Return JSON data as a model.

    Raises:
        Unprocessable: A value is missing, unknown or invalid. The error lists all problems with their paths.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = invalid_values(error, data, model, JSON_WORDS)[:_MAX_PROBLEMS]
        text = "; ".join([f"{problem.place or 'body'}: {problem.message(json_value)}" for problem in problems])
        raise Unprocessable(text, param=problems[0].place or "body", code="invalid_body") from None


def sse(data: Any, *, event: str | None = None, id: int | None = None) -> bytes:
    """Return one server-sent event with JSON data on one line."""
    lines = []
    if id is not None:
        lines.append(b"id: %d\n" % id)
    if event is not None:
        lines.append(b"event: %s\n" % event.encode())
    lines.append(b"data: %s\n\n" % json_text(data).encode())
    return b"".join(lines)


class EventStream(Response):
    """A stream of server-sent events. It stops when the client leaves, or reads nothing for `write_seconds`.

    Args:
        events: The events as bytes; closed when the stream stops.
        options: Maximum seconds without a read of the client, and seconds between heartbeats of an idle stream.
        ending: Returns the last event for an error after the first event; None for no event. An error before the first
            event is an error answer.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        options: ServerOptions,
        *,
        ending: Callable[[ServerError], bytes] | None = None,
    ) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._options = options
        self._ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = _Writer(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending = asyncio.ensure_future(self._send_all(writer))
        leaving = asyncio.ensure_future(_left(receive))
        watching = asyncio.ensure_future(writer.watch(self._options))
        tasks = (sending, leaving, watching)
        failure: ServerError | None = None
        cancelled: asyncio.CancelledError | None = None
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                failure = sending.result()
        except ClientDisconnect:
            _log.debug("a client left its stream")
        except asyncio.CancelledError as error:
            failure, cancelled = stopped(), error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        # The headers are sent with the first event: before it, an error still has its own status.
        if failure is not None and not writer.has_started:
            await error_answer(failure)(scope, receive, send)
        elif failure is not None:
            if self._ending is not None:
                await writer.write(self._ending(failure))
            await writer.write(b"", more=False)
        if cancelled is not None:
            raise cancelled

    async def _send_all(self, writer: _Writer) -> ServerError | None:
        """Send the events, and return the error of their source."""
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    await writer.write(event)
        except ClientDisconnect:
            raise
        except Exception as error:
            return server_error(error)
        await writer.write(b"", more=False)
        return None


class _Writer:
    """Writes a stream to a client, and detects a client that does not read."""

    __slots__ = ("_lock", "_send", "_start", "_write_start", "_written_at", "has_started")

    def __init__(self, send: Send, start: Message) -> None:
        self._send = send
        self._start = start
        self._lock = asyncio.Lock()
        self._write_start: float | None = None
        """Start of the current write; None between writes."""
        self._written_at = time.monotonic()
        self.has_started = False

    async def write(self, body: bytes, *, more: bool = True) -> None:
        """Send bytes, after the headers.

        Raises:
            ClientDisconnect: The client left.
        """
        async with self._lock:
            self._write_start = time.monotonic()
            try:
                if not self.has_started:
                    self.has_started = True
                    await self._send(self._start)
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
            except OSError as error:
                # Only here an OSError means that the client left: the source of the events may raise it too.
                raise ClientDisconnect from error
            self._write_start, self._written_at = None, time.monotonic()

    async def watch(self, options: ServerOptions) -> None:
        """Send heartbeats while the stream is idle; return when the client reads nothing for `write_seconds`."""
        step = min(options.write_seconds, options.idle_seconds) / 4
        while True:
            await asyncio.sleep(step)
            now = time.monotonic()
            if self._write_start is not None:
                if now - self._write_start > options.write_seconds:
                    _log.info("a client read nothing of its stream for %g seconds", options.write_seconds)
                    return
            elif now - self._written_at > options.idle_seconds and not await self._beat(options.write_seconds):
                return

    async def _beat(self, timeout: float) -> bool:
        """Send a heartbeat; return True if the client read it in time."""
        beat = asyncio.ensure_future(self.write(_HEARTBEAT))
        try:
            await asyncio.wait((beat,), timeout=timeout)
        finally:
            is_done = beat.done()
            beat.cancel()
        return is_done


def stopped() -> ServerFull:
    """Return the error of a request that was unfinished when the server stopped."""
    return ServerFull(STOPPED, code="stopped")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, which is cancelled when the client leaves.

    Raises:
        ClientDisconnect: The client left.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait((working, leaving))


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
