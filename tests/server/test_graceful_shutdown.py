"""A server that is stopped during requests: each request gets an answer, and the log has no traceback."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from agentkit import Agent, ScriptedModel
from agentkit.server import Server
from agentkit.testing import Delayed
from tests.waiting import LONG

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")

_SLOW = """
import asyncio
from agentkit import Agent, Message, ScriptedModel, ToolCall, tool


@tool
async def wait() -> str:
    "Wait."
    print("waits", flush=True)
    await asyncio.sleep(300)
    return "done"


asks = Message("assistant", "One moment.", (ToolCall("c", "wait", "{}"),))


class Stubborn(ScriptedModel):
    async def request(self, composition, *, on_delta=None):
        print("waits", flush=True)
        while True:
            try:
                await asyncio.sleep(300)
            except asyncio.CancelledError:
                pass


hangs = Agent(Stubborn([]), name="hangs")
long = Agent(ScriptedModel.repeat("word " * 4_000_000, keep=1), name="long")
silent = Agent(ScriptedModel.repeat(Message("assistant", "", asks.tool_calls)), tools=[wait], name="silent")
slow = Agent(ScriptedModel([asks]), tools=[wait], name="slow")
"""
_MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
from agentkit.cli.app import run
run()
"""


class _Served:
    """`agentkit serve` or `agentkit inspect` as a separate process."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def reads(self) -> str:
        """Return the next printed line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self, times: int = 1) -> str:
        """Press Ctrl-C `times` times; return the log after the end."""
        self.process.send_signal(signal.SIGINT)
        for _ in range(times - 1):
            time.sleep(1)  # two simultaneous signals are one signal
            self.process.send_signal(signal.SIGINT)
        return self.process.communicate(timeout=2 * LONG)[1]

    def begin(self, path: str, body: Any, *, missing: int = 0) -> socket.socket:
        """Send a request without its last bytes, and read nothing."""
        address, _, token = self.url.partition("/inspector/#token=")
        host, port = address.removeprefix("http://").split(":")
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        head += f"\r\nAuthorization: Bearer {token}" if token else ""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(LONG)
        connection.connect((host, int(port)))
        connection.sendall(head.encode() + b"\r\n\r\n" + data[: len(data) - missing])
        return connection


def _served(folder: Path, grace: str, *agents: str) -> AbstractContextManager[_Served]:
    served = [word for agent in agents for word in ("--agent", f"./slow.py:{agent}")]
    return _started(folder, "serve", *served, "--grace", grace)


@contextmanager
def _started(folder: Path, *arguments: str) -> Iterator[_Served]:
    (folder / "slow.py").write_text(_SLOW)
    command = [sys.executable, "-c", _MAIN, *arguments, "--port", "0", "--json"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield _Served(process, json.loads(process.stdout.readline())["url"])
    finally:
        process.kill()
        process.communicate()


def _read(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b""))


def _chat(agent: str, *, stream: bool) -> dict[str, Any]:
    return {"model": agent, "stream": stream, "messages": [{"role": "user", "content": "a"}]}


def _ask(url: str, agent: str, *, stream: bool) -> tuple[int, str]:
    body = _chat(agent, stream=stream)
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=LONG) as answer:
        return answer.status_code, answer.read().decode()


@pytest.mark.parametrize(("times", "grace"), [(1, "1"), (2, "300")])
def test_requests_in_progress_get_an_answer_and_slow_clients_do_not_delay_the_stop(
    tmp_path: Path, times: int, grace: str
) -> None:
    cases = [("silent", False, 503), ("silent", True, 503), ("slow", True, 200)]
    paths = ("/v1/chat/completions", "/runs", "/inspector/api/compose")
    with _served(tmp_path, grace, "silent", "slow", "long") as server, ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(_ask, server.url, agent, stream=stream) for agent, stream, _ in cases]
        assert [server.reads() for _ in cases] == ["waits\n"] * len(cases)
        incomplete = [server.begin(path, _chat("silent", stream=False), missing=5) for path in paths]
        assert httpx.get(f"{server.url}/healthz", timeout=LONG).status_code == 200  # the requests above have started
        slow = [server.begin("/v1/chat/completions", _chat("long", stream=stream)) for stream in (False, True)]
        for connection in slow:
            connection.recv(1)  # the answer has started
        stopping = threads.submit(server.stop, times)
        while not stopping.done():  # slowly, because a client that reads nothing is dropped
            time.sleep(0.05)
            for connection in slow:
                with suppress(OSError):
                    connection.recv(2048)
        log = stopping.result()
        answers = [_read(connection) for connection in incomplete]
        for connection in slow:
            connection.close()
    assert server.process.returncode == 130
    assert log.strip() == "stopped; stored data is not lost"
    for asked, (agent, stream, status) in zip(asking, cases, strict=True):
        found, text = asked.result()
        assert found == status, (agent, stream)
        assert '"code":"stopped"' in text and "send it again" in text
        assert ('"One' in text) == (status == 200)
    for answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503") and "send it again" in json.loads(body)["error"]["message"]


def test_a_request_in_progress_at_the_local_inspector_gets_an_answer(tmp_path: Path) -> None:
    with _started(tmp_path, "inspect", "--agent", "./slow.py:silent", "--no-open") as server:
        connection = server.begin("/inspector/api/compose", {"base": {}}, missing=5)
        page = server.url.partition("#")[0]
        assert httpx.get(page, timeout=LONG).status_code == 200  # the request above has started
        log = server.stop(2)
        answer = _read(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503") and "send it again" in json.loads(body)["error"]["message"]
    assert log.strip() == "stopped; stored data is not lost"


@pytest.mark.long
def test_runs_that_do_not_stop_are_abandoned(tmp_path: Path) -> None:
    with _served(tmp_path, "0.5", "hangs") as server, ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(_ask, server.url, "hangs", stream=stream) for stream in (False, True)]
        assert [server.reads(), server.reads()] == ["waits\n"] * 2
        run = httpx.post(f"{server.url}/runs", json={"agent": "hangs", "input": "a"}, timeout=LONG).json()
        assert run["status"] == "queued" and server.reads() == "waits\n"
        server.process.send_signal(signal.SIGTERM)
        _, log = server.process.communicate(timeout=LONG)
        answers = [one.result() for one in asking]
    assert [(status, '"code":"stopped"' in text) for status, text in answers] == [(503, True)] * 2
    assert "1 runs do not stop" in log and "Traceback" not in log


@pytest.mark.parametrize("stream", [False, True])
async def test_a_caller_in_the_same_process_stays_cancelled(stream: bool) -> None:
    server = Server([Agent(ScriptedModel.repeat(Delayed(300, "late")), name="a")])
    transport = httpx.ASGITransport(server.app, client=("127.0.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        asking = asyncio.ensure_future(client.post("/v1/chat/completions", json=_chat("a", stream=stream)))
        while not server.limits.running:
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.wait((asking,))
    assert asking.cancelled()
