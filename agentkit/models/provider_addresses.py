"""Forms of addresses that the environment variables of providers contain, converted to base URLs."""

from __future__ import annotations

from urllib.parse import urlsplit

_SCHEMES = ("http://", "https://")

_OLLAMA_PORT = "11434"
_OLLAMA_CLOUD = "ollama.com"
_LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""Addresses that a client can connect to, by addresses that only a server can use."""


def is_address(text: str) -> bool:
    """True if a text is the address of a server, also with `#` and a model at its end."""
    return text[:8].lower().startswith(_SCHEMES)


def with_path(address: str, path: str) -> str:
    """Return an address with the path if the address has no path. An address in another form is unchanged."""
    scheme, mark, rest = address.partition("://")
    host, _, tail = rest.partition("/")
    if not mark or not path or tail.strip("/") or any(end in rest for end in "?#"):
        return address
    return f"{scheme}://{host}{path}"


def azure_address(address: str, path: str) -> str:
    """Return the base URL of the v1 API for the endpoint of an Azure resource, with or without a path."""
    if any(end in address for end in "?#") or address.rstrip("/").endswith("/v1"):
        return address
    return address.rstrip("/").partition("/openai")[0] + path


def ollama_address(address: str, path: str) -> str:
    """Return the base URL for a value of OLLAMA_HOST: `host`, `host:port`, an IP address, or an address with a scheme.

    Without a scheme the port is 11434 by default. `0.0.0.0` and `::`, at which a server listens, become loopback.
    """
    address = address.strip("\"' ")
    scheme, mark, rest = address.partition("://")
    port = ""
    if not mark:
        scheme, rest, port = "http", address, _OLLAMA_PORT
        if address == _OLLAMA_CLOUD:
            scheme, port = "https", ""
    location, _, tail = rest.partition("/")
    user, at, host = location.rpartition("@")
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    # The port follows the bracket of an IPv6 address.
    name, colon, own_port = host, "", ""
    if not host.endswith("]"):
        name, colon, own_port = host.rpartition(":")
        if not colon:
            name = own_port
    if colon:
        port = own_port
    name = _LOOPBACK.get(name, name)
    if port:
        name = f"{name}:{port}"
    tail = tail.rstrip("/")
    if tail:
        tail = f"/{tail}"
    # A query would be hidden inside of the path.
    if not tail.endswith(path) and not any(end in tail for end in "?#"):
        tail += path
    return f"{scheme}://{user}{at}{name}{tail}"


def host_of(url: str) -> str:
    """Return host and port of an address, without credentials, path, query and fragment; empty if it is invalid."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # An incomplete IPv6 address, or a port that is not a number.
        return ""
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    if port is None:
        return host
    return f"{host}:{port}"


def shown_address(url: str) -> str:
    """Return an address without its credentials, query and fragment, which can be secrets; empty if it is invalid."""
    host = host_of(url)
    parts = url.partition("://")
    if not host or parts[0].lower() not in ("http", "https"):
        return ""
    return f"{parts[0]}://{host}{urlsplit(url).path}"
