"""An MCP server that sends messages unasked: `unasked_peer.py pipes KIND` or `http KIND` (prints its port)."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOG = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 99}}
PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
KINDS = {
    "messages": f"data: {json.dumps(LOG)}\n\n".encode(),
    "questions": f"data: {json.dumps(PING)}\n\n".encode(),
    "comments": b": " + b"x" * 9_999 + b"\n",
    "one event": b"data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
    "ends": b"retry: 0\ndata: \n\n",
}
WAIT_SECONDS = 0.5


class Peer:
    """Answers requests; `sent` is the number of messages without a request."""

    def __init__(self) -> None:
        self.sent = 0

    def outcome(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request: the tools return the number of sent messages, `wait` after some time."""
        match message["method"]:
            case "initialize":
                info = {"name": "unasked", "version": "0"}
                version = "2025-06-18"
                return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
            case "tools/list":
                return {"result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("sent", "wait")]}}
            case "tools/call":
                if message["params"]["name"] == "wait":
                    time.sleep(WAIT_SECONDS)
                return {"result": {"content": [{"type": "text", "text": str(self.sent)}]}}
        return {"error": {"code": -32601, "message": "unknown"}}

    def send_on(self, write: Callable[[], object]) -> None:
        """Send messages until the connection ends."""
        try:
            while True:
                write()
                self.sent += 1
        except (OSError, ValueError):
            return


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message or "method" not in message:
            self.answer(202, b"")
        else:
            outcome = self.server.peer.outcome(message)
            self.answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode())

    def do_GET(self) -> None:
        piece = KINDS[self.server.kind]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if self.server.kind == "ends":
            self.wfile.write(piece)
            self.server.peer.sent += 1
        else:
            self.server.peer.send_on(lambda: self.wfile.write(piece))

    def do_DELETE(self) -> None:
        self.answer(200, b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Mcp-Session-Id", "1")
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, kind: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.kind = kind
        self.peer = Peer()


def over_pipes(kind: str) -> None:
    peer, lock = Peer(), threading.Lock()
    one = PING if kind == "questions" else LOG

    def write(message: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    def answer(message: dict[str, Any]) -> None:
        write({"jsonrpc": "2.0", "id": message["id"], **peer.outcome(message)})

    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()
        elif message.get("method") == "notifications/initialized":
            threading.Thread(target=peer.send_on, args=(lambda: write(one),), daemon=True).start()


def over_http(kind: str) -> None:
    server = Server(kind)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    {"pipes": over_pipes, "http": over_http}[sys.argv[1]](sys.argv[2])
