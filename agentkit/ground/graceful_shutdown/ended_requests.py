"""`EndedRequests`: requests that are cancelled before they are answered get an answer all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["STOPPED", "EndedRequests"]

STOPPED = "the server was stopped before this was done: ask again"
"""What an answer says that a server gives when it stops."""


class EndedRequests:
    """An ASGI application whose cancelled requests are answered, where no answer has begun yet.

    The cancellation is passed on, as whoever cancelled may be a caller in this process that waits no longer.

    Args:
        app: The application.
        answer: Makes that answer.
        is_stopping: Whether it is a server that cancels requests, because it stops: it wants to hear nothing of it.
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
        has_begun = False

        async def sent(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            try:
                await self._app(scope, receive, sent)
            except asyncio.CancelledError:
                if not has_begun:
                    await self._answer()(scope, receive, send)
                raise
        except asyncio.CancelledError:
            if not self._is_stopping():
                raise
