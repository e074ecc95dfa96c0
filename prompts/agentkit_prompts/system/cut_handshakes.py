"""Closing of connections whose TLS handshake is cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class CutHandshake:
    """Trace function that closes the connection of a request that is cancelled during its TLS handshake.

    httpcore closes a connection if its handshake fails, but not if the request is cancelled: the connection stays open
    until the garbage collector finds it. Pass a new object to each request as its extension `trace`.
    """

    def __init__(self) -> None:
        self._stream: Any = None

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        """Handle an event of httpcore."""
        if event == "connection.connect_tcp.complete":
            self._stream = info["return_value"]
        elif event == "connection.start_tls.failed":
            await self._stream.aclose()
