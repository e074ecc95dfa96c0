"""`serve`: runs a server in this process until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from errno import EADDRINUSE
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from agentkit.errors import AgentDefinitionError
from agentkit.ground.graceful_shutdown.stoppable_server import StoppableServer
from agentkit.server.connection_limits import BACKLOG, ConnectionLimits, brief_log, file_limit
from agentkit.server.http_app import Server
from agentkit_prompts.errors import check_types
from agentkit_prompts.hints import with_option_hints
from agentkit_prompts.system.local_requests import is_loopback

_MAX_PORT = 65_535


class _TimedProtocol(H11Protocol):
    """HTTP/1.1 with limits of connections, of the time of headers, and of the time of a client that does not read."""

    limits: ConnectionLimits
    header_seconds: float
    write_seconds: float
    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_header_timer()
        if not self.limits.admit(self, self.client[0] if self.client else ""):
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.remove(self)
        self._cancel_header_timer()
        self._cancel_write_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            # `close` would wait until the buffer is sent to a client that does not read.
            self._write_timer = self.loop.call_later(self.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_write_timer()
        super().resume_writing()

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def data_received(self, data: bytes) -> None:
        # The data may contain the first bytes of the next request of this connection.
        if self._header_timer is None and self.is_idle:
            self._start_header_timer()
        previous = self.cycle
        super().data_received(data)
        # uvicorn starts a new cycle as soon as the headers of a request are complete.
        if self.cycle is not previous:
            self._cancel_header_timer()

    @property
    def is_idle(self) -> bool:
        """True if no request with complete headers is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def _start_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(self.header_seconds, self._close_idle)

    def _cancel_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _close_idle(self) -> None:
        self._header_timer = None
        if self.is_idle:
            self.transport.close()


class RunningServer(StoppableServer):
    """A uvicorn server that finishes streams of events as soon as its shutdown starts."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config, server.options.grace_seconds)
        self._served = server
        self.on_ready: Callable[[], object] = lambda: None
        """Called when the server listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.on_ready()

    async def main_loop(self) -> None:
        with brief_log():
            await super().main_loop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._served.stop_listening()
        await super().shutdown(sockets)

    @property
    def port(self) -> int:
        """The port of a started server."""
        return int(self.servers[0].sockets[0].getsockname()[1])


def _check_port(host: str, port: int) -> None:
    """Refuse an address on which no server can listen: uvicorn would log a number of an error, and exit.

    Raises:
        AgentDefinitionError: Another program uses the port, or the host or port cannot be used.
    """
    problem = ""
    if not 0 <= port <= _MAX_PORT:
        problem = f"expected a port from 0 to {_MAX_PORT}"
    try:
        # Port 0 is a free port.
        if port and not problem:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as listener:
                # A port whose last connections are closing is free.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
                listener.listen()
    except OSError as error:
        problem = error.strerror or str(error)
        if error.errno == EADDRINUSE:
            problem = "another program uses the port; choose another port, or stop that program"
    if problem:
        raise AgentDefinitionError(f"the server cannot listen on {host}:{port}: {problem}", name="port", value=port)


def uvicorn_server(server: Server, *, host: str = "127.0.0.1", port: int = 8000) -> RunningServer:
    """Return a server that is not started.

    Args:
        server: The server.
        host: Host name or address to listen on.
        port: Port to listen on; 0 selects a free port.

    Raises:
        AgentDefinitionError: Other machines could reach the server, and it requires no tokens; or the server cannot
            listen on the address.
    """
    check_types(
        AgentDefinitionError,
        "serve",
        server=(server, Server, "a Server, such as Server([agent])"),
        host=(host, str, "a name or an address"),
        port=(port, int, "a number"),
    )
    if server.access.is_open and not is_loopback(host):
        raise AgentDefinitionError(
            f"serve: other machines can reach {host}, and the server requires no tokens: create tokens with "
            "`agentkit token` and serve with --access FILE",
            name="host",
            value=host,
        )
    _check_port(host, port)
    options = server.options

    class Protocol(_TimedProtocol):
        limits = ConnectionLimits(options)
        header_seconds = options.header_seconds
        write_seconds = options.write_seconds

    config = uvicorn.Config(
        server.app,
        host=host,
        port=port,
        http=Protocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        # More waiting connections than the rest of the files would be accepted at once.
        backlog=min(BACKLOG, file_limit() // 4),
        limit_concurrency=None,
        timeout_keep_alive=max(1, round(options.idle_seconds)),
    )
    return RunningServer(config, server)


@with_option_hints
def serve(server: Server, *, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve until SIGINT or SIGTERM. Running requests have `grace_seconds` to finish.

    Raises:
        AgentDefinitionError: Other machines could reach the server, and it requires no tokens.
    """
    uvicorn_server(server, host=host, port=port).run()
