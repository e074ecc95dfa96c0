"""One request and its answer: bodies that are read within limits, JSON, and streams of events."""

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
from agentkit.server.server_errors import BadRequest, ServerError, ServerFull, TooLarge, Unprocessable, Unsupported
from agentkit.server.server_options import ServerOptions
from agentkit.server.turns.turn_errors import server_error
from agentkit_prompts.errors import brief
from agentkit_prompts.names import nearest

__all__ = ["EventStream", "JSONAnswer", "error_answer", "read_json", "sse", "stopped", "validated", "while_connected"]

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
_log = logging.getLogger("agentkit.server")
_BEAT = b": still here\n\n"
_MAX_PROBLEMS = 50


class JSONAnswer(Response):
    """An answer as JSON."""

    media_type = "application/json"

    def __init__(self, data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(json_text(data).encode(), status, dict(headers) if headers else None)


def error_answer(error: ServerError) -> JSONAnswer:
    """Return an error as an answer, in OpenAI's shape."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONAnswer(error.body, error.status, headers)


async def read_body(request: Request, options: ServerOptions) -> bytes:
    """Return the body of a request.

    Raises:
        TooLarge: It is longer than the server reads.
        BadRequest: It did not arrive in time.
    """
    most = options.body_bytes
    announced = request.headers.get("content-length")
    if announced is not None and announced.isdecimal() and int(announced[:20]) > most:
        raise _too_large(most)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(options.body_seconds):
            async for piece in request.stream():
                size += len(piece)
                if size > most:
                    raise _too_large(most)
                pieces.append(piece)
    except TimeoutError:
        raise BadRequest(
            f"the body did not arrive within {options.body_seconds:g} seconds", code="body_timeout"
        ) from None
    return b"".join(pieces)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body is longer than the {most:,} bytes that are read", code="body_too_large")


async def read_json(request: Request, options: ServerOptions) -> Any:
    """Return the body of a request that is JSON.

    Raises:
        Unsupported: The body is of another type: a web page could send it without being asked.
        BadRequest: It is not JSON, has too many values, or a number that no float can hold.
        TooLarge: It is longer than the server reads.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Unsupported(f"expected Content-Type: application/json, got {kind or 'none'!r:.80}", code="media_type")
    body = await read_body(request, options)
    try:
        return request_json(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON that is read here: {error}", code="invalid_json") from None


def validated(model: type[M], data: Any) -> M:
    """Return JSON data as a model.

    Raises:
        Unprocessable: Names everything that is missing, unknown or invalid, each with its place.
    """
    if not isinstance(data, Mapping):
        raise Unprocessable(f"the body: expected an object, got {brief(data, 40)}", code="invalid_body")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        items = error.errors(include_url=False, include_context=False)[:_MAX_PROBLEMS]
        problems: dict[str, str] = {}
        for item in items:
            place = _place(item["loc"], data)
            if item["type"] == "extra_forbidden":
                what = f"unknown field{nearest(str(item['loc'][-1]), _fields(model))}"
            elif item["type"] == "missing":
                what = "is missing"
            else:
                what = f"{item['msg']}, got {brief(item['input'], 60)}"
            problems[place] = f"{problems[place]}; or {what}" if place in problems else what
        text = "; ".join(f"{place}: {what}" for place, what in problems.items())
        raise Unprocessable(text, param=next(iter(problems)), code="invalid_body") from None


def _place(loc: tuple[str | int, ...], data: Any) -> str:
    """Return where a value stands in the body; the arms of a union are left out."""
    shown, found = "", data
    for at, step in enumerate(loc):
        is_last = at == len(loc) - 1
        if isinstance(step, int) and isinstance(found, list) and step < len(found):
            shown, found = f"{shown}[{step}]", found[step]
        elif isinstance(found, Mapping) and (step in found or (is_last and not isinstance(step, int))):
            shown = f"{shown}.{step}" if shown else str(step)
            found = found.get(step)
    return shown[:200] or "body"


def _fields(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def sse(data: Any, *, event: str | None = None, id: int | None = None) -> bytes:
    """Return one server-sent event whose data is JSON, on one line."""
    head = b"" if id is None else b"id: %d\n" % id
    head += b"" if event is None else b"event: %s\n" % event.encode()
    return head + b"data: %s\n\n" % (data if isinstance(data, bytes) else json_text(data).encode())


class EventStream(Response):
    """A stream of server-sent events. It ends when the client leaves, and when it takes nothing for too long.

    Args:
        events: The events as bytes. It is closed when the stream ends, however it does.
        options: How long to wait for the client, and after how long without an event to send a sign of life.
        ending: Makes the last event of what `events` raises behind the first of them, None for none; what it raises
            before is answered as an error.
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
            failure = sending.result() if sending.done() else None
        except (ClientDisconnect, OSError):
            _log.debug("a client left its stream")
        except asyncio.CancelledError as error:
            failure, cancelled = stopped(), error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if failure is not None and not writer.has_begun:
            await error_answer(failure)(scope, receive, send)
        elif failure is not None:
            if self._ending is not None:
                await writer.write(self._ending(failure))
            await writer.write(b"", more=False)
        if cancelled is not None:
            raise cancelled

    async def _send_all(self, writer: _Writer) -> ServerError | None:
        """Send the events; return what went wrong."""
        try:
            async with aclosing(self._events) as events:
                async for piece in events:
                    await writer.write(piece)
        except OSError:
            raise
        except Exception as error:
            return server_error(error)
        await writer.write(b"", more=False)
        return None


class _Writer:
    """Writes a stream to a client, and notices when it takes nothing."""

    __slots__ = ("_lock", "_send", "_start", "_taking", "_wrote", "has_begun")

    def __init__(self, send: Send, start: Message) -> None:
        self._send = send
        self._start = start
        self._lock = asyncio.Lock()
        self._taking: float | None = None
        self._wrote = time.monotonic()
        self.has_begun = False

    async def write(self, body: bytes, *, more: bool = True) -> None:
        """Send a piece, behind the headers."""
        async with self._lock:
            self._taking = time.monotonic()
            if not self.has_begun:
                self.has_begun = True
                await self._send(self._start)
            await self._send({"type": "http.response.body", "body": body, "more_body": more})
            self._taking, self._wrote = None, time.monotonic()

    async def watch(self, options: ServerOptions) -> None:
        """Send signs of life while nothing happens; return when the client takes too long to take something."""
        step = min(options.write_seconds, options.idle_seconds) / 4
        while True:
            await asyncio.sleep(step)
            now = time.monotonic()
            if self._taking is not None:
                if now - self._taking > options.write_seconds:
                    _log.info("a client took nothing of its stream for %g seconds", options.write_seconds)
                    return
            elif now - self._wrote > options.idle_seconds:
                beat = asyncio.ensure_future(self.write(_BEAT))
                try:
                    await asyncio.wait((beat,), timeout=options.write_seconds)
                finally:
                    is_taken = beat.done()
                    beat.cancel()
                if not is_taken:
                    return


def stopped() -> ServerFull:
    """Return the error of a request that had not ended when the server did."""
    return ServerFull(STOPPED, code="stopped")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine does, which is cancelled when the client leaves.

    Raises:
        ClientDisconnect: It did.
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
