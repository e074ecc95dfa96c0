"""W9, the server: 200 streaming clients on loopback with a model without latency, and memory during many requests.

The server is a separate process. The clients use sockets directly, so that the server is measured and not a client
library. First byte: the time from the request to the first delta. `Starlette by hand` is an endpoint that streams the
same text without an agent, on the same uvicorn.

`custom` is the server as users write it: an agent with a tool, layers and limits, and clients that call the tool. The
number of requests of `memory` is 20,000, or `AGENTKIT_BENCH_REQUESTS`, such as 50000.
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
from contextlib import ExitStack
from pathlib import Path

from harness import Figure, Samples, figures, main, median_of_ratios

CLIENTS = 200
STREAMS = 10
"""Number of streams per client."""
REQUESTS = int(os.environ.get("AGENTKIT_BENCH_REQUESTS", "20000"))
AT_ONCE = 32
_START = """
from agentkit.server.serving import uvicorn_server

running = uvicorn_server(app, port=0)
running.on_ready = lambda: print(running.port, flush=True)
running.run()
"""
_AGENTKIT = (
    """
from agentkit import Agent, ScriptedModel
from agentkit.server.http_app import Server
from agentkit.server.server_options import ServerOptions

model = ScriptedModel.repeat("One two three four five six seven eight.", keep=1)
app = Server([Agent(model, "You are brief.", name="a")], options=ServerOptions(requests_per_minute=10_000_000))
"""
    + _START
)
_CUSTOM = (
    """
from agentkit import Agent, Limits, ScriptedModel, ToolCall, tool
from agentkit.prompts import KnowledgePrompt, Layers, UserInputPrompt, WrapPrompt
from agentkit.server.http_app import Server
from agentkit.server.server_options import ServerOptions

@tool
async def count(word: str) -> int:
    "Count the letters of a word."
    return len(word)

def reply(sent):
    if sent.messages[-1].role == "tool":
        return "One two three four five six seven eight."
    return ToolCall(name="count", arguments={"word": "seven"})

layers = Layers(
    system=["You are brief.", KnowledgePrompt("{% for fact in knowledge %}* {{ fact.text }}\\n{% endfor %}")],
    input=WrapPrompt((UserInputPrompt(),), "Question: {{ wrapped_str }}"),
)
agent = Agent(ScriptedModel.repeat(reply, keep=1), layers=layers, tools=[count], limits=Limits(steps=4), name="a")
app = Server([agent], options=ServerOptions(requests_per_minute=10_000_000))
"""
    + _START
)
_STARLETTE = """
import json
import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

async def chunks():
    for word in ("One", " two", " three", " four", " five", " six", " seven", " eight."):
        choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
        document = {"id": "c", "object": "chat.completion.chunk", "model": "a", "choices": [choice]}
        yield "data: " + json.dumps(document) + "\\n\\n"
    yield "data: [DONE]\\n\\n"

async def answer(request):
    await request.json()
    return StreamingResponse(chunks(), media_type="text/event-stream")

app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])

class Running(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)

Running(uvicorn.Config(app, port=0, ws="none", http="h11", access_log=False, log_level="warning")).run()
"""


def _request(stream: bool, question: str) -> bytes:
    message = {"role": "user", "content": question}
    body = json.dumps({"model": "a", "messages": [message], "stream": stream}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


class _Started:
    """A server process."""

    def __init__(self, script: str) -> None:
        self.script = script

    def __enter__(self) -> _Started:
        self.process = subprocess.Popen([sys.executable, "-c", self.script], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the server process."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

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


def streams(rounds: int) -> Iterable[Figure]:
    """Run 200 concurrent clients with ten streams each."""

    async def run_clients(port: int, clients: int) -> tuple[list[float], list[str]]:
        first_bytes: list[float] = []
        errors: list[str] = []
        await asyncio.gather(*[_stream(port, number, first_bytes, errors) for number in range(clients)])
        return first_bytes, errors

    scripts = {"Starlette by hand": _STARLETTE, "agentkit": _AGENTKIT, "agentkit, custom": _CUSTOM}
    cpu_times: dict[str, list[float]] = {name: [] for name in scripts}
    medians: dict[str, list[float]] = {name: [] for name in scripts}
    highs: dict[str, list[float]] = {name: [] for name in scripts}
    error_counts = dict.fromkeys(scripts, 0)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(_Started(script)) for name, script in scripts.items()}
        for server in servers.values():
            asyncio.run(run_clients(server.port, 20))  # warm
        for number in range(max(1, rounds // 2)):
            for name in list(servers)[:: 1 if number % 2 else -1]:
                cpu_start = servers[name].cpu_seconds
                first_bytes, errors = asyncio.run(run_clients(servers[name].port, CLIENTS))
                cpu_times[name].append((servers[name].cpu_seconds - cpu_start) / (CLIENTS * STREAMS))
                medians[name].append(statistics.median(first_bytes))
                highs[name].append(statistics.quantiles(first_bytes, n=100)[98])
                error_counts[name] += len(errors)
    title = f"W9 {CLIENTS} streaming clients"
    yield from figures(f"{title}, CPU of the server", {name: Samples(times) for name, times in cpu_times.items()})
    for name in scripts:
        ratio, spread = median_of_ratios(highs[name], medians[name])
        yield Figure(f"{title}, first byte", f"{name}, median", 1e3 * statistics.median(medians[name]), "ms")
        yield Figure(f"{title}, first byte", f"{name}, p99", 1e3 * statistics.median(highs[name]), "ms", ratio, spread)
        yield Figure(title, f"{name}, errors", error_counts[name], "")


def memory(_rounds: int) -> Iterable[Figure]:
    """Compare the memory after half of the requests, when all caches are filled, and after all."""

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

    with _Started(_AGENTKIT) as server:
        done, mib = 0, []
        start = time.perf_counter()
        for _ in range(10):
            done += asyncio.run(send_all(server.port, REQUESTS // 10))
            mib.append(server.mib)
        seconds = time.perf_counter() - start
    title = f"W9 memory, {REQUESTS:,} requests"
    yield Figure(title, "requests without an answer", REQUESTS // AT_ONCE // 10 * AT_ONCE * 10 - done, "")
    yield Figure(title, "requests per second", done / seconds, "1/s")
    yield Figure(title, "after half", mib[4], "MiB")
    yield Figure(title, "after all", mib[-1], "MiB", mib[-1] / mib[4])


if __name__ == "__main__":
    main(__doc__, {"streams": streams, "memory": memory})
