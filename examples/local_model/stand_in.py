"""A server that answers completions as a local one does, with two replies that are written down here."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'


class Completions(BaseHTTPRequestHandler):
    """Calls the tool first, and answers once its result is in the prompt."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = "2 + 3 is 5." if "<tool_response>" in asked["prompt"] else CALL
        reply = {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": "stop"}]}
        body = json.dumps({"id": "c1", "created": 0, "model": asked["model"], **reply}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def stand_in() -> Iterator[str]:
    """Serve until the end of the block; gives the base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Completions)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
