"""A Qdrant server for tests."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from qdrant_client import QdrantClient, models


class _Http(ThreadingHTTPServer):
    request_queue_size = 128
    """Number of waiting connections. With the default of 5, the system resets some of 90 concurrent connections."""


class Server:
    """Server with the necessary part of the REST protocol of Qdrant, based on the local mode of the client."""

    def __init__(self) -> None:
        self.local = QdrantClient(":memory:")
        self.version = "1.19.2"
        self.status = 200
        """Status of the answers to all requests except the first request of an opening."""
        self.empty = False
        """True if all answers have the status 200 and no result, as another server can answer."""
        self.delay = 0.0
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                time.sleep(outer.delay)
                with outer.lock:
                    status, result = outer.answer(self.command, self.path.split("?")[0], body)
                data = json.dumps({"status": "ok", "time": 0.0, "result": result}).encode()
                if self.path == "/":
                    data = json.dumps({"title": "qdrant", "version": outer.version}).encode()
                with suppress(OSError):  # the client can have closed the connection
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = do  # noqa: N815 - the names that http.server calls

            def log_message(self, *_: object) -> None:
                pass

        self.http = _Http(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.asked.append(body)
        if self.status != 200:
            return self.status, None
        if self.empty:
            return 200, None
        _, _, name, *rest = [*path.split("/"), "", ""]
        what = method, "/".join(part for part in rest if part)
        local = self.local
        if path == "/":
            return 200, None
        if what == ("GET", "exists"):
            return 200, {"exists": local.collection_exists(name)}
        if what == ("PUT", ""):
            made = models.CreateCollection(**body)
            local.create_collection(
                name, made.vectors, made.sparse_vectors, shard_number=made.shard_number, metadata=made.metadata
            )
            return 200, True
        if not local.collection_exists(name):
            return 404, None
        if what == ("GET", ""):
            return 200, json.loads(local.get_collection(name).model_dump_json())
        if what == ("DELETE", ""):
            return 200, local.delete_collection(name)
        done = {"operation_id": 1, "status": "completed"}
        if what == ("PUT", "index"):
            return 200, done
        if what == ("PUT", "points"):
            points = models.PointsList(**body)
            local.upsert(name, points.points, update_filter=points.update_filter)
            return 200, done
        if what == ("POST", "points/delete"):
            local.delete(name, models.PointIdsList(**body))
            return 200, done
        if what == ("POST", "points/count"):
            return 200, {"count": local.count(name, models.CountRequest(**body).filter).count}
        if what == ("POST", "points/query"):
            asked = models.QueryRequest(**body)
            query = asked.query.nearest if isinstance(asked.query, models.NearestQuery) else asked.query
            found = local.query_points(
                name,
                query,
                using=asked.using,
                query_filter=asked.filter,
                search_params=asked.params,
                limit=asked.limit or 10,
            )
            return 200, {"points": [{"id": each.id, "version": 1, "score": each.score} for each in found.points]}
        if what == ("POST", "points/scroll"):
            scroll = models.ScrollRequest(**body)
            records, after = local.scroll(name, limit=scroll.limit or 10, offset=scroll.offset, with_payload=True)
            points = [{"id": each.id, "payload": each.payload} for each in records]
            return 200, {"points": points, "next_page_offset": after}
        raise AssertionError(what)
