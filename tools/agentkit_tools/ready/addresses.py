"""Parser of web addresses, and a guard that limits the hosts, networks and ports that a tool may reach."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from agentkit_prompts.errors import check_types
from agentkit_prompts.limits import MAX_PATH_CHARS
from agentkit_prompts.public_addresses import is_public
from agentkit_tools.errors import ToolDefinitionError, ToolError

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a host name and a port."""

_ADDRESS = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]@%]+))(?::([0-9]{1,5}))?", re.IGNORECASE | re.ASCII)
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORTS = {"http": 80, "https": 443}


class AddressUnreachable(ToolError):
    """An allowed address has no server, or its server cannot be reached.

    Attributes:
        host: Host of the address.
    """

    def __init__(self, message: str, *, host: str = "") -> None:
        super().__init__(message)
        self.host = host


class WebAddress(NamedTuple):
    """Parts of an http address in ASCII."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query."""

    @property
    def origin(self) -> str:
        """Host, and port unless it is the default port of the scheme."""
        host = self.host
        if ":" in host:
            host = f"[{host}]"
        if self.port == _PORTS[self.scheme]:
            return host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.origin}{self.target}"


def read_address(text: str) -> WebAddress:
    """Parse an address. The connection uses the parsed parts.

    Raises:
        ToolError: The text is not an http address, has a user or a password, or has a host that programs could
            interpret in different ways.
    """
    try:
        return _read(text)
    except ValueError as error:
        raise ToolError(f"{text[:200]!r} cannot be opened: {error}") from error


def _read(text: str) -> WebAddress:
    if len(text) > MAX_PATH_CHARS:
        raise ValueError(f"it is longer than {MAX_PATH_CHARS} characters")
    if not text.isprintable() or "\\" in text:
        raise ValueError("it has control characters or a backslash")
    address = _ADDRESS.fullmatch(text.strip())
    if address is None:
        raise ValueError("it must start with http:// or https://")
    scheme, authority, target = address[1].lower(), address[2], address[3]
    if "@" in authority:
        raise ValueError("it must not contain a user or a password")
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise ValueError("its host is invalid")
    if not target.startswith("/"):
        target = f"/{target}"
    try:
        host = _host(parts)
    except ValueError:
        # The messages of the libraries are less clear to a model.
        raise ValueError("its host is invalid, or an IP address that is not four decimal numbers") from None
    port = int(parts[3] or _PORTS[scheme])
    return WebAddress(scheme, host, port, quote(target, safe="%/:=&?~+!$,;'@()*[]|"))


def _host(parts: re.Match[str]) -> str:
    """Return the host of an address, in ASCII.

    Raises:
        ValueError: The host is invalid.
    """
    if parts[1]:
        return str(IPv6Address(parts[1]))
    # IDNA converts full-width digits and dots to ASCII.
    host = parts[2].encode("idna").decode().lower().removesuffix(".")
    if not _NAME.fullmatch(host):
        raise ValueError
    if _is_number(host):
        # Octal, hexadecimal and shortened forms are refused.
        return str(IPv4Address(host))
    return host


def _each(name: str, items: Iterable[object], kind: type, expected: str) -> dict[str, tuple[object, type, str]]:
    """Return the arguments of `check_types` for the items of a list."""
    return {f"{name}[{index}]": (item, kind, expected) for index, item in enumerate(items)}


def _networks(texts: Iterable[str], problems: list[tuple[str, str]]) -> list[IPv4Network | IPv6Network]:
    """Return the valid networks, and add the problems of invalid networks to `problems`."""
    networks: list[IPv4Network | IPv6Network] = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError:
            expected = "an address and the length of its prefix, with zeros after the prefix, such as 10.1.0.0/16"
            problems.append(("networks", f"network {text!r}: expected {expected}"))
    return networks


def _hosts(texts: Iterable[str], problems: list[tuple[str, str]]) -> list[str]:
    """Return the valid hosts as in a `WebAddress`, and add the problems of invalid hosts to `problems`."""
    hosts: list[str] = []
    for text in texts:
        name = text.removeprefix("*.")
        try:
            host = _host_of(name)
        except ValueError:
            expected = "a name without scheme and port, such as docs.python.org or *.example.org"
            problems.append(("hosts", f"host {text[:100]!r}: expected {expected}"))
        else:
            hosts.append(text[: len(text) - len(name)] + host)
    return hosts


def _host_of(name: str) -> str:
    """Return an allowed name or IP address as the host of a `WebAddress`.

    Raises:
        ValueError: The name is invalid.
    """
    if ":" in name:
        return str(IPv6Address(name.removeprefix("[").removesuffix("]")))
    parts = _AUTHORITY.fullmatch(name)
    if parts is None:
        raise ValueError
    return _host(parts)


class Guard:
    """Limits for the hosts, networks and ports that can be reached.

    Raises:
        ToolDefinitionError: A host, a network or a port is invalid; the message lists all of them.
    """

    def __init__(self, hosts: Collection[str] | None, networks: Iterable[str], ports: Collection[int] | None) -> None:
        check_types(
            ToolDefinitionError,
            "http tool",
            **_each("hosts", hosts or (), str, "the name of a host"),
            **_each("networks", networks, str, "a network"),
            **_each("ports", ports or (), int, "a whole number"),
        )
        problems: list[tuple[str, str]] = []
        self.hosts: Sequence[str] | None = None
        if hosts is not None:
            self.hosts = _hosts(hosts, problems)
        self.ports = ports
        problems += [("ports", f"port {port} is not from 1 to 65535") for port in ports or () if not 0 < port < 65536]
        self.networks = _networks(networks, problems)
        if problems:
            text = "; ".join([problem for _, problem in problems])
            raise ToolDefinitionError(f"http tool: {text}", names=dict.fromkeys([name for name, _ in problems]))

    def check(self, address: WebAddress) -> None:
        """Check the host and the port of an address.

        Raises:
            ToolError: The host or the port is not allowed.
        """
        if self.ports is not None and address.port not in self.ports:
            raise ToolError(f"{address} cannot be opened: allowed ports: {_listed(map(str, self.ports))}")
        if self.hosts is not None and not any(_matches(address.host, host) for host in self.hosts):
            raise ToolError(f"{address} cannot be opened: allowed hosts: {_listed(self.hosts)}")

    async def addresses(self, host: str, port: int, resolve: Resolver) -> list[str]:
        """Return the IP addresses of a host. Connect only to these addresses.

        Raises:
            AddressUnreachable: The host has no address.
            ToolError: An address is not allowed.
        """
        addresses: list[IPv4Address | IPv6Address] = []
        reason: Exception | None = None
        try:
            texts = [host] if _is_number(host) else await resolve(host, port)
            addresses = [ip_address(text) for text in texts]
        except (OSError, ValueError) as error:
            reason = error
        if not addresses:
            raise AddressUnreachable(f"unknown host {host}: the name has no address", host=host) from reason
        if not all(map(self._may_reach, addresses)):
            raise ToolError(f"{host} cannot be opened: it is not on the public internet")
        return [str(address) for address in addresses]

    def _may_reach(self, address: IPv4Address | IPv6Address) -> bool:
        return is_public(address) or any(address in network for network in self.networks)


def _is_number(host: str) -> bool:
    """True if a host of a `WebAddress` is an IP address."""
    return ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def _matches(host: str, allowed: str) -> bool:
    return host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:]))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
