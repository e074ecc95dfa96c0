"""Servers on loopback, each in a thread: a function that answers requests, or an application."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import uvicorn

from tests.waiting import LONG, until


class Received(NamedTuple):
    """A request."""

    path: str
    headers: Mapping[str, str]
    """Headers by their names in lower case."""
    body: bytes


Answer = Callable[[Received], tuple[int, Mapping[str, str], bytes] | None]
"""Returns status, headers and body, or None to close the connection."""


class _Http(ThreadingHTTPServer):
    request_queue_size = 128
    """Connections that may wait. With the default of 5, the system resets some connections that open at once."""


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Answer requests while the block runs; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"] or 0))
            reply = answer(Received(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            if reply is None:
                self.close_connection = True
                return
            status, headers, content = reply
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do  # noqa: N815 - the names that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    with _Http(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class _App(uvicorn.Server):
    """Leaves no connection open when it stops, for any clients and handlers."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


@contextmanager
def serving(app: Any, port: int = 0, **options: Any) -> Iterator[tuple[str, uvicorn.Server]]:
    """Serve an ASGI application while the block runs; yield its address and its server."""
    server = _App(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", ws="none", **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    assert server.started, "the test server did not start"
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", server
    finally:
        server.should_exit = server.force_exit = True
        thread.join(LONG)
