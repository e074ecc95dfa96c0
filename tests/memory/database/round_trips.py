"""A proxy of a PostgreSQL server that counts round trips, and can delay each."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


class Proxy:
    """Forwards bytes. A round trip ends with the message `ReadyForQuery` of the server."""

    def __init__(self, server: str, delay: float = 0.0) -> None:
        self.delay = delay
        self.trips = 0
        self._server = urlsplit(server)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Address of the same database through this proxy."""
        given = self._server
        return f"postgresql://{given.username or 'postgres'}:{given.password or ''}@127.0.0.1:{self.port}{given.path}"

    def close(self) -> None:
        self._listening.close()

    def _connect(self) -> socket.socket:
        folder = parse_qs(self._server.query).get("host", [""])[0]
        port = self._server.port or 5432
        if folder.startswith("/"):
            found = next(path for path in Path(folder).glob(".s.PGSQL.*") if path.suffix != ".lock")
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(found))
            return server
        return socket.create_connection((self._server.hostname or "127.0.0.1", port))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server = self._connect()
                for source, target, is_client in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pump, args=(source, target, is_client), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        kept = b""
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not is_client:
                    ready, kept = _ready(kept + data)
                    self.trips += ready
                    time.sleep(self.delay * ready)
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _ready(data: bytes) -> tuple[int, bytes]:
    """Return the number of messages `ReadyForQuery` in the bytes of a server, and the incomplete last message.

    Each message is a letter and its length. Single letters can precede the first message: refused encryption.
    """
    count, at = 0, 0
    while at + 5 <= len(data):
        if data[at : at + 1] == b"N" and data[at + 1 : at + 2] in (b"N", b"R"):
            at += 1
            continue
        end = at + 1 + int.from_bytes(data[at + 1 : at + 5], "big")
        if end > len(data):
            break
        count += data[at : at + 1] == b"Z"
        at = end
    return count, data[at:]


@contextlib.contextmanager
def proxied(server: str, delay: float = 0.0) -> Iterator[Proxy]:
    proxy = Proxy(server, delay)
    try:
        yield proxy
    finally:
        proxy.close()
