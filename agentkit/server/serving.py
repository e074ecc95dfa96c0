"""`serve`: a server in this process, until it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from agentkit.errors import AgentDefinitionError
from agentkit.ground.graceful_shutdown.stoppable_server import StoppableServer
from agentkit.server.http_app import Server, is_loopback
from agentkit_prompts.errors import check_types

__all__ = ["RunningServer", "serve", "uvicorn_server"]

_BACKLOG = 2048


class _TimedProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose request does not arrive, or whose answer is not taken."""

    header_seconds: float
    write_seconds: float
    _waiting: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(self.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_writing()
        super().resume_writing()

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def data_received(self, data: bytes) -> None:
        if self._waiting is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()  # the next request on this connection begins
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:  # its headers are complete
            self._stop_waiting()

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.header_seconds, self._close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _close(self) -> None:
        self._waiting = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class RunningServer(StoppableServer):
    """A uvicorn server that ends streams of events as soon as it is to stop."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config, server.options.grace_seconds)
        self._served = server
        self.on_ready: Callable[[], object] = lambda: None
        """Is called once it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._served.stop_listening()
        await super().shutdown(sockets)

    @property
    def port(self) -> int:
        """The port that it listens on, once it has `started`."""
        return int(self.servers[0].sockets[0].getsockname()[1])


def uvicorn_server(server: Server, *, host: str = "127.0.0.1", port: int = 8000) -> RunningServer:
    """Return a server that is not started.

    Args:
        server: What is served.
        host: Where to listen.
        port: Where to listen; 0 takes one that is free.

    Raises:
        AgentDefinitionError: It would be open to other machines without asking for tokens.
    """
    check_types(
        AgentDefinitionError,
        "serve",
        server=(server, Server, "a Server"),
        host=(host, str, "a name or an address"),
        port=(port, int, "a number"),
    )
    if server.access.is_open and not is_loopback(host):
        raise AgentDefinitionError(
            f"serve: {host} is open to other machines, and no token is asked for: make tokens with `agentkit token`, "
            "and serve with --access FILE",
            name="host",
            value=host,
        )
    options = server.options

    class Protocol(_TimedProtocol):
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
        backlog=_BACKLOG,
        limit_concurrency=None,
        timeout_keep_alive=max(1, round(options.idle_seconds)),
    )
    return RunningServer(config, server)


def serve(server: Server, *, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve until the process gets a signal to stop (SIGINT, SIGTERM). What goes on then has `grace_seconds` to end.

    Raises:
        AgentDefinitionError: As `uvicorn_server` does.
    """
    uvicorn_server(server, host=host, port=port).run()
