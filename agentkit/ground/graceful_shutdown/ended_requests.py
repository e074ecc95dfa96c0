"""`EndedRequests`: responses to requests that a stopping server cancels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

STOPPED = "the server stopped before the request was complete: send it again"
"""Text of the response to requests that a stopping server cancels."""


class EndedRequests:
    """An ASGI application that responds to cancelled requests, if no response has started.

    The cancellation is raised again, unless the server stops.

    Args:
        app: The application.
        answer: Creates the response.
        is_stopping: Returns True if the server stops, so that the server must not receive the cancellation.
    """

    def __init__(
        self, app: ASGIApp, answer: Callable[[], Response], is_stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self._app = app
        self._answer = answer
        self._is_stopping = is_stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_started = False

        async def sent(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            try:
                await self._app(scope, receive, sent)
            except asyncio.CancelledError:
                if not has_started:
                    await self._answer()(scope, receive, send)
                raise
        except asyncio.CancelledError:
            if not self._is_stopping():
                raise
