"""MCP servers in separate processes, over both transports."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.waiting import reserved_port, until

PEER = Path(__file__).parent / "mcp_peer.py"
RAW = Path(__file__).parent / "raw_peer.py"


@dataclass
class HTTPPeer:
    """A server that listens on a port of loopback, and can be restarted after a kill."""

    name: str
    port: int
    script: Path = PEER
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        command = [sys.executable, str(self.script), self.name, str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        listens(self.port)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextmanager
def http_server(name: str, script: Path = PEER) -> Iterator[HTTPPeer]:
    """Run a server on a separate port."""
    with reserved_port() as port:
        peer = HTTPPeer(name, port, script)
        peer.start()
        try:
            yield peer
        finally:
            peer.kill()


def listens(port: int) -> None:
    """Wait until a server listens on a port of loopback."""

    def is_there() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    until(is_there)


def command(name: str) -> list[str]:
    """The command that starts a server on its pipes."""
    return [sys.executable, str(PEER), name]


def raw_command(name: str) -> list[str]:
    """The command that starts a server without an SDK, which starts twenty times as fast."""
    return [sys.executable, str(RAW), name]


def is_alive(pid: int) -> bool:
    """Return True if a process runs; a zombie process does not run."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:  # it has just ended, or /proc is missing
        return not stat.parent.parent.exists()


def ends(pid: int) -> bool:
    """Wait until a process has ended."""
    return bool(until(lambda: not is_alive(pid)))
