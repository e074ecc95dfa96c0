"""W9, the server: 200 streaming clients on loopback with a model without latency, and memory during 50,000 requests.

The server is a separate process. The clients use sockets directly, so that the server is measured and not a client
library. First byte: the time from the request to the first delta.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from harness import Figure, main

CLIENTS = 200
STREAMS = 10
"""Number of streams per client."""
REQUESTS = int(os.environ.get("AGENTKIT_BENCH_REQUESTS", "50000"))
AT_ONCE = 32
_SERVER = """
from agentkit import Agent, ScriptedModel
from agentkit.server.http_app import Server
from agentkit.server.server_options import ServerOptions
from agentkit.server.serving import uvicorn_server

model = ScriptedModel.repeat("One two three four five six seven eight.", keep=1)
options = ServerOptions(requests_per_minute=10_000_000)
running = uvicorn_server(Server([Agent(model, "You are brief.", name="a")], options=options), port=0)
running.on_ready = lambda: print(running.port, flush=True)
running.run()
"""


def _request(stream: bool, question: str) -> bytes:
    message = {"role": "user", "content": question}
    body = json.dumps({"model": "a", "messages": [message], "stream": stream}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


class _Started:
    """A server process."""

    def __enter__(self) -> _Started:
        self.process = subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    @property
    def mib(self) -> float:
        """Resident memory of the server process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def _stream(port: int, number: int, first_bytes: list[float], errors: list[str]) -> None:
    """Request successive streams on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for turn in range(STREAMS):
        start = time.perf_counter()
        writer.write(_request(True, f"Question {number} {turn}"))
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head[:16]:
            errors.append(head.decode("latin-1"))
            break
        received, has_text = b"", False
        while not received.endswith(b"0\r\n\r\n"):
            received += await reader.read(65536)
            if not has_text and b"One" in received:
                first_bytes.append(time.perf_counter() - start)
                has_text = True
        if b"[DONE]" not in received or b"eight." not in received:
            errors.append("a stream is incomplete")
    writer.close()


def streams(_rounds: int) -> Iterable[Figure]:
    """Run 200 concurrent clients with ten streams each."""

    async def run_clients(port: int, clients: int) -> tuple[list[float], list[str]]:
        first_bytes: list[float] = []
        errors: list[str] = []
        await asyncio.gather(*[_stream(port, number, first_bytes, errors) for number in range(clients)])
        return first_bytes, errors

    with _Started() as server:
        asyncio.run(run_clients(server.port, 20))  # warm
        start = time.perf_counter()
        first_bytes, errors = asyncio.run(run_clients(server.port, CLIENTS))
        seconds = time.perf_counter() - start
    median, high = statistics.median(first_bytes), statistics.quantiles(first_bytes, n=100)[98]
    title = f"W9 {CLIENTS} streaming clients"
    yield Figure(title, "errors", len(errors), "", None, "0", not errors)
    yield Figure(title, "first byte, median", median * 1000, "ms")
    yield Figure(title, "first byte, p99", high * 1000, "ms", high / median, "under 5 x median", high < 5 * median)
    yield Figure(title, "streams a second", len(first_bytes) / seconds, "1/s")


def memory(_rounds: int) -> Iterable[Figure]:
    """Send 50,000 requests; compare the memory after three tenths of them and after all."""

    async def send_requests(port: int, count: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        done = 0
        for turn in range(count):
            writer.write(_request(False, f"Question {turn}"))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            done += b" 200 " in head[:16]
        writer.close()
        return done

    async def send_all(port: int, count: int) -> int:
        return sum(await asyncio.gather(*[send_requests(port, count // AT_ONCE) for _ in range(AT_ONCE)]))

    with _Started() as server:
        done, mib = 0, []
        start = time.perf_counter()
        for _ in range(10):
            done += asyncio.run(send_all(server.port, REQUESTS // 10))
            mib.append(server.mib)
        seconds = time.perf_counter() - start
    growth = mib[-1] - mib[2]
    yield Figure("W9 memory", "requests answered", done, "", None, f"about {REQUESTS}", done >= REQUESTS * 0.99)
    yield Figure("W9 memory", "requests a second", done / seconds, "1/s")
    yield Figure("W9 memory", "after 3 tenths", mib[2], "MiB")
    yield Figure("W9 memory", "after all", mib[-1], "MiB", mib[-1] / mib[2], "flat", growth < 8)


if __name__ == "__main__":
    main(__doc__, {"streams": streams, "memory": memory})
