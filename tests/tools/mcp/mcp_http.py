"""An MCP server over HTTP without an SDK, because no SDK can write such answers."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODES = (
    *("endless", "events", "packed", "page", "elsewhere", "broken", "half", "other id", "deep", "crowded"),
    *("repeats", "lines", "again", "opened", "fine", "silent", "flood", "heads", "resumed", "untold", "numbers"),
    *("begun", "closed", "sessions"),
)
EVENTS = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}


class Handler(BaseHTTPRequestHandler):
    """Behaves correctly until a tool is called; the name of the tool is the kind of the fault."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message["method"]
        if method == "notifications/cancelled" and self.server.untold:
            self.send_until_closed("heads")
        elif "id" not in message:
            self.answer(202, b"")
        elif method == "initialize":
            self.server.sessions += 1
            version = message["params"]["protocolVersion"]
            about = {"name": "hand", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            self.answer(200, body, **{"Mcp-Session-Id": str(self.server.sessions)})
        elif method == "tools/list":
            self.result(message, {"tools": [{"name": mode, "inputSchema": {"type": "object"}} for mode in MODES]})
        elif method == "tools/call":
            self.misbehave(message["params"]["name"], message)
        else:
            self.send(message, {"error": {"code": -32601, "message": "Method not found"}})

    opened = 0
    """Number of times that a stream was opened again."""

    def do_GET(self) -> None:
        if self.headers["Last-Event-ID"] == "resumed":
            self.send_until_closed("flood")
        elif "Last-Event-ID" in self.headers:
            Handler.opened += 1
            self.end_at_once()
        else:
            self.answer(405, b"")

    def do_DELETE(self) -> None:
        if self.server.untold:
            self.send_until_closed("heads", seen=False)
        else:
            self.answer(200, b"")

    def end_at_once(self) -> None:
        """Answer with a stream that ends, so that the client opens it again immediately."""
        self.answer(200, b"id: %d\nretry: 0\ndata: \n\n" % Handler.opened, **{"Content-Type": "text/event-stream"})

    def misbehave(self, mode: str, message: dict[str, Any]) -> None:
        fine = {"content": [{"type": "text", "text": "fine"}]}
        if mode in ("endless", "events"):
            kind = "application/json" if mode == "endless" else "text/event-stream"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            start = b'{"jsonrpc": "2.0", "result": "' if mode == "endless" else b"data: "
            piece = b"x" * 1_000_000
            self.chunk(start)
            while True:
                self.chunk(piece)
        elif mode == "crowded":
            self.answer(200, b'{"jsonrpc": "2.0", "id": 1, "result": {"x": [' + b"[]," * 10_000_000 + b"[]]}}")
        elif mode == "packed":
            body = gzip.compress(b" " * 200_000_000, 1)
            self.answer(200, body, **{"Content-Encoding": "gzip"})
        elif mode == "page":
            self.answer(200, b"<html>Please log in</html>", **{"Content-Type": "text/html"})
        elif mode == "elsewhere":
            self.answer(307, b"", Location="http://127.0.0.2:1/mcp")
        elif mode == "broken":
            self.answer(500, b"Traceback: secret")
        elif mode == "half":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b'{"jsonrpc"')
            self.close_connection = True
        elif mode == "other id":
            self.result({**message, "id": 4242}, fine)
        elif mode == "deep":
            self.answer(200, b'{"jsonrpc": "2.0", "id": 1, "result": ' + b"[" * 100_000)
        elif mode == "repeats":
            key = self.headers["X-Key"]
            self.send(message, {"error": {"code": 1, "message": f"wrong key {key}", "data": [self.path, {key: key}]}})
        elif mode == "again":
            self.end_at_once()
        elif mode == "resumed":
            self.answer(200, b"id: resumed\nretry: 0\ndata: \n\n", **{"Content-Type": "text/event-stream"})
        elif mode == "untold":
            self.server.untold = True
            self.send_until_closed("silent", seen=False)
        elif mode in ("silent", "flood", "heads"):
            self.send_until_closed(mode)
        elif mode in ("begun", "closed"):
            happened = self.server.begun.is_set() if mode == "begun" else self.server.closed.wait(50)
            self.result(message, {"content": [{"type": "text", "text": "yes" if happened else "no"}]})
        elif mode == "sessions":
            self.result(message, {"content": [{"type": "text", "text": str(self.server.sessions)}]})
        elif mode == "numbers":
            token = message["params"]["_meta"]["progressToken"]
            odd = [{"progress": 10**400}, {"progress": 1, "total": -(10**400)}]
            events = [
                {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, **one}}
                for one in odd
            ]
            events.append({"jsonrpc": "2.0", "id": message["id"], "result": fine})
            body = "".join(f"data: {json.dumps(one)}\n\n" for one in events)
            self.answer(200, body.encode(), **{"Content-Type": "text/event-stream"})
        elif mode == "opened":
            self.result(message, {"content": [{"type": "text", "text": str(Handler.opened)}]})
        elif mode == "lines":
            log = {
                "jsonrpc": "2.0",
                "method": "notifications/message",
                "params": {"level": "info", "data": [1] * 9_000},
            }
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": fine}
            events = [f"data: {json.dumps(one)}\r\n\r\n" for one in ([log] * 40 + [answer])]
            self.answer(200, "".join(events).encode(), **{"Content-Type": "text/event-stream"})
        else:
            self.result(message, fine)

    def send_until_closed(self, mode: str, *, seen: bool = True) -> None:
        """Send no answer until the client closes the connection."""
        self.server.begun.set()
        try:
            if mode == "heads":
                while True:
                    self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
            self.send_response(200)
            for name, value in EVENTS.items():
                self.send_header(name, value)
            self.end_headers()
            log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 999}}
            event = f"data: {json.dumps(log)}\n\n".encode()
            while mode == "flood":
                self.chunk(event)
            self.rfile.read(1)
        except OSError:
            pass
        if seen:
            self.server.closed.set()
        self.close_connection = True

    def chunk(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def result(self, message: dict[str, Any], result: Any) -> None:
        self.send(message, {"result": result})

    def send(self, message: dict[str, Any], outcome: dict[str, Any]) -> None:
        self.answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode())

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the client has closed the connection
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Records the events of its connections."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sessions = 0
        self.untold = False
        """True if a client that cancels a call, or ends a session, gets no answer."""
        self.begun = threading.Event()
        """Set when an answer starts that does not end."""
        self.closed = threading.Event()
        """Set when the client has closed the connection of an answer that does not end."""


@contextmanager
def hand_written() -> Iterator[str]:
    """Serve on loopback; yield the address."""
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        server.server_close()
