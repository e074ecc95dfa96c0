"""A server of agents on loopback, and its clients: over HTTP, and by the official SDK."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2 as httpx
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from agentkit.server import Server
from agentkit.server.serving import RunningServer, uvicorn_server
from tests.waiting import LONG, until


class Client:
    """Asks a server."""

    def __init__(self, running: RunningServer, server: Server) -> None:
        self.server = server
        self.running = running
        self.port = running.port
        self.url = f"http://127.0.0.1:{running.port}"
        self._opened = ExitStack()
        # Certificates take long to read.
        self.http = self._opened.enter_context(httpx.Client(base_url=self.url, timeout=LONG, verify=False))

    def openai(self, token: str = "none") -> OpenAI:
        http = self._opened.enter_context(DefaultHttpxClient(verify=False))
        return OpenAI(base_url=f"{self.url}/v1", api_key=token, max_retries=0, timeout=LONG, http_client=http)

    def async_openai(self, token: str = "none") -> AsyncOpenAI:
        http = DefaultAsyncHttpxClient(verify=False)
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=token, max_retries=0, timeout=LONG, http_client=http)

    def close(self) -> None:
        """Close the connections of all clients."""
        self._opened.close()

    def get(self, path: str, token: str | None = None, **more: Any) -> httpx.Response:
        return self.http.get(path, headers=_headers(token, more), **more)

    def post(self, path: str, json: Any = None, token: str | None = None, **more: Any) -> httpx.Response:
        return self.http.post(path, json=json, headers=_headers(token, more), **more)

    def delete(self, path: str, token: str | None = None) -> httpx.Response:
        return self.http.delete(path, headers=_headers(token, {}))

    def events(self, path: str, token: str | None = None, **more: Any) -> list[dict[str, str]]:
        """Return the events of a stream, read to its end: `id`, `event` and `data`."""
        with self.http.stream("GET", path, headers=_headers(token, more), **more) as answer:
            answer.read()
        assert answer.status_code == 200, answer.text
        found = []
        for block in answer.text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if fields:
                found.append(fields)
        return found


def _headers(token: str | None, more: dict[str, Any]) -> dict[str, str]:
    given: dict[str, str] = more.pop("headers", {})
    return given if token is None else {"Authorization": f"Bearer {token}", **given}


@contextmanager
def served(*agents: Any, prepare: Callable[[Server], object] = lambda _: None, **options: Any) -> Iterator[Client]:
    """Serve agents on loopback until the end of the block; `prepare` gets the server before it starts."""
    server = Server(agents, **options)
    prepare(server)
    running = uvicorn_server(server, port=0)
    thread = threading.Thread(target=lambda: asyncio.run(running.serve()), daemon=True)
    thread.start()
    until(lambda: running.started)
    client = Client(running, server)
    try:
        yield client
    finally:
        client.close()
        running.should_exit = True
        thread.join(LONG)
        assert not thread.is_alive()


def ended(client: Client, run: str, token: str | None = None) -> dict[str, Any]:
    """Return a run after its end, or when it waits."""

    def seen() -> dict[str, Any] | None:
        found: dict[str, Any] = client.get(f"/runs/{run}", token).json()
        return None if found["status"] in ("queued", "running") else found

    done: dict[str, Any] = until(seen)
    return done
