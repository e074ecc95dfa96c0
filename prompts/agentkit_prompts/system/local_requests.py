"""`LocalRequests`: guard of an HTTP server without tokens, which serves only programs on this machine."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

_App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""

_PROXY_WORDS = frozenset(
    (
        *("addr", "address", "cdn", "cert", "clientip", "cluster", "geoip", "host", "ip", "ipcountry", "original"),
        *("originating", "real", "remote", "replaced", "rewrite", "scheme", "socketip", "ssl", "surrogate", "tls"),
        *("userip", "varnish", "via"),
    )
)
"""Words in names of headers with which proxies describe the client or the request that they received."""
_PROXY_PARTS = ("forward", "proxy", "proxie")
_PROXY_PREFIXES = (
    *("akamai-", "cf-", "cloudfront-", "fastly-", "fly-", "front-end-", "incap-", "ngrok-", "tailscale-", "x-akamai-"),
    *("x-amz-cf-", "x-amzn-", "x-appengine-", "x-arr-", "x-auth-request-", "x-azure-", "x-envoy-", "x-goog-iap-"),
    *("x-ms-client-principal", "x-nf-", "x-ngrok-", "x-pomerium-", "x-sucuri-", "x-vercel-", "x-webauth-"),
)
"""Prefixes of headers of proxies, tunnels and content delivery networks."""
_AUTHORITY = r"(\[[0-9a-f:]+\]|[^\[\]:/@\\?#\s]+)(?::[0-9]{0,5})?"
"""Host and port. A user before the host is refused: programs differ about the place at which the host starts."""
_HOST = re.compile(_AUTHORITY, re.IGNORECASE)
_ADDRESS = re.compile(rf"https?://{_AUTHORITY}(?:[/?#].*)?", re.IGNORECASE | re.DOTALL)


class LocalRequests:
    """An ASGI application that refuses requests from other machines, through a proxy, or from pages of other sites.

    The address of the connection is not enough: a proxy on this machine connects from a loopback address, and so does a
    browser on this machine that shows the page of another site.

    Args:
        app: The application.
        refuse: Returns the application that answers a refused request. It receives the reason, which is the end of the
            sentence "the server ...".
        origins: Origins of other sites that may send requests, such as `https://chat.example.com`.
    """

    def __init__(self, app: _App, refuse: Callable[[str], _App], origins: Iterable[str] = ()) -> None:
        self._app = app
        self._refuse = refuse
        self._origins = frozenset(origins)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        app = self._app
        if scope["type"] == "http":
            reason = self._refusal(scope)
            if reason is not None:
                app = self._refuse(reason)
        await app(scope, receive, send)

    def _refusal(self, scope: Any) -> str | None:
        """Return the reason to refuse a request; None for an accepted request."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        # The name in the Host header counts too: a web page may let its own name resolve to 127.0.0.1.
        hosts = headers.get("host", [])
        client = scope.get("client")
        is_from_here = client is None or is_loopback(client[0])
        if not is_from_here or not hosts or not all(_is_local(_HOST, host) for host in hosts):
            return "accepts only requests from this machine to localhost"
        proxy_header = next(filter(_names_proxy, headers), None)
        if proxy_header is not None:
            return f"accepts no requests through a proxy, and this request has the header {proxy_header!r:.60}"
        if self._is_from_another_site(scope["method"], headers):
            return "accepts no requests from pages of other sites"
        return None

    def _is_from_another_site(self, method: str, headers: dict[str, list[str]]) -> bool:
        """True if a browser sent the request for a page of another site."""
        origins = headers.get("origin", [])
        if origins:
            return not all(origin in self._origins or _is_local(_ADDRESS, origin) for origin in origins)
        sites = headers.get("sec-fetch-site", [])
        if not any(site.strip().lower() == "cross-site" for site in sites):
            return False
        # Browsers consider localhost and 127.0.0.1 different sites, and send no Origin with a simple GET.
        pages = headers.get("referer", [])
        if pages and all(_is_local(_ADDRESS, page) for page in pages):
            return False
        # A link to this server on another page opens in a window, whose content the other page cannot read.
        opens_window = headers.get("sec-fetch-dest") == ["document"] and method in ("GET", "HEAD")
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
    """True if a proxy added a header. Some proxies and gateways write `_` instead of `-`, and CGI adds `HTTP_`."""
    name = header.replace("_", "-").removeprefix("http-")
    if name == "host":
        return name != header
    return (
        name.startswith(_PROXY_PREFIXES)
        or any(part in name for part in _PROXY_PARTS)
        or not _PROXY_WORDS.isdisjoint(name.split("-"))
    )


def _is_local(pattern: re.Pattern[str], text: str) -> bool:
    match = pattern.fullmatch(text)
    return match is not None and is_loopback(match[1].lower())
