"""`LocalRequests`: guard of a server without tokens, which serves only programs on this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from agentkit.server.endpoints.exchange import error_answer
from agentkit.server.server_errors import AccessDenied

__all__ = ["LocalRequests", "is_loopback"]

_PROXY_HEADERS = frozenset(
    (
        "cdn-loop",
        "cf-connecting-ip",
        "cf-ray",
        "client-ip",
        "fastly-client-ip",
        "fly-client-ip",
        "forwarded",
        "true-client-ip",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-original-host",
        "x-real-ip",
    )
)
"""Headers that proxies and content delivery networks add to a request."""
_PROXY_PREFIXES = ("x-forwarded", "x-original-forwarded", "x-envoy-", "x-amzn-")
_ADVICE = "create a token with `agentkit token` and serve with its access file"


class LocalRequests:
    """An ASGI application that refuses requests from other machines, through a proxy, or from pages of other sites.

    The address of the connection is not enough: a proxy on this machine connects from a loopback address, and so does a
    browser on this machine that shows the page of another site.

    Args:
        app: The application.
        origins: Origins of other sites that may send requests, such as `https://chat.example.com`.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str] = ()) -> None:
        self._app = app
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reason = self._refusal(Request(scope))
        if reason is None:
            await self._app(scope, receive, send)
            return
        error = AccessDenied(f"a server without tokens {reason}: {_ADVICE}", code="not_loopback")
        await error_answer(error)(scope, receive, send)

    def _refusal(self, request: Request) -> str | None:
        """Return the reason to refuse a request; None for an accepted request."""
        client = request.client
        # The name in the Host header counts too: a web page may let its own name resolve to 127.0.0.1.
        hosts = request.headers.getlist("host")
        if (client is not None and not is_loopback(client.host)) or not all(map(_is_local_host, hosts)) or not hosts:
            return "accepts only requests from this machine to localhost"
        proxy_header = next(filter(_names_proxy, request.headers), None)
        if proxy_header is not None:
            return f"accepts no requests through a proxy, and this request has the header {proxy_header!r:.60}"
        if self._is_from_another_site(request):
            return "accepts no requests from pages of other sites"
        return None

    def _is_from_another_site(self, request: Request) -> bool:
        """True if a browser sent the request for a page of another site."""
        origins = request.headers.getlist("origin")
        if origins:
            return not all(origin in self._origins or _is_local_origin(origin) for origin in origins)
        if request.headers.get("sec-fetch-site") != "cross-site":
            return False
        # Browsers consider localhost and 127.0.0.1 different sites, and send no Origin with a simple GET.
        if _is_local_origin(request.headers.get("referer", "")):
            return False
        # A link to this server on another page opens in a window, whose content the other page cannot read.
        opens_window = request.headers.get("sec-fetch-dest") == "document" and request.method in ("GET", "HEAD")
        return not opens_window


def is_loopback(host: str) -> bool:
    """True if a host name or an address is a loopback address of this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _names_proxy(header: str) -> bool:
    return header in _PROXY_HEADERS or header.startswith(_PROXY_PREFIXES)


def _is_local_host(host: str) -> bool:
    if ":" in host and not host.endswith("]"):
        host = host.rpartition(":")[0]
    return is_loopback(host.lower())


def _is_local_origin(origin: str) -> bool:
    """True if an origin, or the address of a page, is on this machine."""
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)
