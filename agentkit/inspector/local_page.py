"""Server of the inspector on loopback, for requests with the token of this start."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request

from agentkit.ground.graceful_shutdown.ended_requests import EndedRequests
from agentkit.ground.graceful_shutdown.stoppable_server import StoppableServer
from agentkit.inspector.inspector_routes import PREFIX, routes, stopped
from agentkit.inspector.local_source import LocalSource
from agentkit.inspector.source import InspectorSource

_HOST = "127.0.0.1"
_GRACE_SECONDS = 5
"""Seconds that requests have to finish when the server stops."""


def local_app(source: LocalSource, token: str, ready: Callable[[], object] = lambda: None) -> Starlette:
    """Return the application, which answers requests with the token and a host name of this machine.

    Another page in the same browser cannot read data, because it has no token, and cannot reach the server by another
    host name.
    """

    def source_of(request: Request) -> InspectorSource:
        authorization = request.headers.get("authorization", "")
        if not secrets.compare_digest(authorization.encode("utf-8", "replace"), f"Bearer {token}".encode()):
            raise HTTPException(
                401,
                "missing or wrong token: use the address that `agentkit inspect` printed",
                {"www-authenticate": "Bearer"},
            )
        return source

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        del app
        ready()
        try:
            yield
        finally:
            await source.close()

    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[_HOST, "localhost"], www_redirect=False)
    return Starlette(routes=routes(source_of), middleware=[hosts], lifespan=lifespan)


def serve_locally(
    source: LocalSource,
    *,
    port: int = 0,
    where: str = "",
    on_ready: Callable[[str], object] = lambda url: None,
) -> None:
    """Serve until the process is interrupted.

    Args:
        source: The objects to show.
        port: Port on loopback; 0 for a free port.
        where: First view of the page, such as `/run/RUN` or `/session/NAME`.
        on_ready: Called with the address, which contains the token, when the server accepts connections.

    Raises:
        OSError: The port is in use.
    """
    token = secrets.token_urlsafe(24)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, port))
        listening.listen(128)
        view = ""
        if where:
            view = f"&to={where}"
        address = f"http://{_HOST}:{listening.getsockname()[1]}{PREFIX}/#token={token}{view}"
        app = local_app(source, token, lambda: on_ready(address))
        config = uvicorn.Config(
            EndedRequests(app, stopped, lambda: server.should_exit),
            log_level="warning",
            access_log=False,
            ws="none",
            server_header=False,
        )
        server = StoppableServer(config, _GRACE_SECONDS)
        server.run(sockets=[listening])
