"""`ConnectionLimits`: maximum open connections of a server, and the log of an exhausted process."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from agentkit.ground.repeated_lines import RepeatedLines
from agentkit.server.server_options import ServerOptions

_log = logging.getLogger("agentkit.server.connections")
_FULL = "socket.accept() out of system resource"
"""Start of the message of asyncio when the process can open no file."""
_LOG_SECONDS = 1.0
_UNLIMITED = 1 << 20
BACKLOG = 128
"""Connections that wait to be accepted; asyncio accepts as many before it counts the first."""


class Connection(Protocol):
    """A connection that can be closed to make room."""

    @property
    def is_idle(self) -> bool:
        """True if no request with complete headers is in progress."""
        ...

    def abort(self) -> None:
        """Close the connection at once."""


class ConnectionLimits:
    """Counts connections, in total and per address. A new connection replaces the oldest idle connection at a limit.

    A client that sends nothing, or half of the headers of a request, therefore keeps no other client out. The addresses
    of a network of 64 bits count as one address of IPv6.

    Args:
        options: The limits. At most half of the files that the process can open are used: databases and connections to
            models need the other half. An address uses at most three quarters of the total.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.total = max(2, min(options.connections, file_limit() // 2))
        self.per_address = max(1, min(options.connections_per_address, self.total * 3 // 4))
        self._addresses: dict[Connection, str] = {}
        """Address of each connection, from the oldest connection to the newest."""
        self._counts: Counter[str] = Counter()

    def admit(self, connection: Connection, address: str) -> bool:
        """Count a connection and return True, or return False if a limit is reached and no connection is idle."""
        address = _counted_address(address)
        if self._counts[address] >= self.per_address and not self._close_idle(address):
            return False
        if len(self._addresses) >= self.total and not self._close_idle(None):
            return False
        self._addresses[connection] = address
        self._counts[address] += 1
        return True

    def remove(self, connection: Connection) -> None:
        """Remove a connection that was closed or refused."""
        address = self._addresses.pop(connection, None)
        if address is None:
            return
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def _close_idle(self, address: str | None) -> bool:
        """Close the oldest idle connection, of an address if set; return False without an idle connection."""
        for connection, its_address in self._addresses.items():
            if connection.is_idle and address in (None, its_address):
                self.remove(connection)
                connection.abort()
                return True
        return False


def _counted_address(address: str) -> str:
    """Return the address under which the connections of a client are counted."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address  # of a Unix socket
    if ip.version == 4:
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    # A client of IPv6 has a network of 2**64 addresses.
    return str(ipaddress.ip_network((ip.packed[:8] + bytes(8), 64)))


def file_limit() -> int:
    """Return the maximum number of files that this process can open."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return _UNLIMITED
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return _UNLIMITED
    return soft


def raise_file_limit() -> None:
    """Raise the soft limit of open files of this process to its hard limit."""
    try:
        import resource
    except ModuleNotFoundError:
        return
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        # Some systems report a hard limit that they do not permit; the limits of the server fit the soft limit.
        _log.info("the limit of open files stays %d: the system refuses %d", file_limit(), hard)


@contextmanager
def brief_log() -> Iterator[None]:
    """Log each problem of connections at most once per second, on one line, until the end of the block."""
    once = RepeatedLines(_LOG_SECONDS)
    loop = asyncio.get_running_loop()
    previous = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if str(context.get("message", "")).startswith(_FULL):
            _log.warning("the process can open no more files: new connections wait; raise its limit of open files")
        elif previous is None:
            loop.default_exception_handler(context)
        else:
            previous(loop, context)

    loggers = (_log, logging.getLogger("uvicorn.error"))
    for logger in loggers:
        logger.addFilter(once)
    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(previous)
        for logger in loggers:
            logger.removeFilter(once)
