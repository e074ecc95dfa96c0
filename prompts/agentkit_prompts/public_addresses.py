"""Addresses and names of hosts of the public internet."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

_NOT_PUBLIC_4 = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3"""
"""IANA's registry of special addresses (this network, private, shared, loopback, link-local, documentation, 6to4
relays, benchmarks, multicast, reserved), and 168.63.129.16, which a large cloud uses for its own services."""
_NOT_PUBLIC_6 = "2001::/23 2001:db8::/32 2002::/16 3fff::/20"
"""Special ranges inside `_PUBLIC_6`: Teredo and other protocols, documentation, and 6to4, which encodes IPv4
addresses."""
_PUBLIC_6 = IPv6Network("2000::/3")
_CLOSED = [ip_network(network) for network in f"{_NOT_PUBLIC_4} {_NOT_PUBLIC_6}".split()]
_NAT64 = IPv6Network("64:ff9b::/96")
"""Addresses that represent IPv4 addresses in a network without IPv4; their last 32 bits are the IPv4 address."""

_INNER_NAMES = (
    *(".localhost", ".local", ".localdomain", ".internal", ".intranet", ".private", ".lan", ".home", ".home.arpa"),
    *(".corp", ".svc", ".test", ".example", ".invalid", ".onion"),
)
"""Suffixes of host names that are not public: reserved names, and usual names of internal networks."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """True if an address belongs to the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED)
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _PUBLIC_6 and not any(address in network for network in _CLOSED)


def is_public_host(name: str) -> bool:
    """True if a host is a public address, or a name that can have one."""
    host = name.strip("[]").rstrip(".").lower()
    try:
        return is_public(ip_address(host))
    except ValueError:
        # A name without a dot is resolved in the local network.
        return "." in host and not host.endswith(_INNER_NAMES)
