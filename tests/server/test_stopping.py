"""A server that is stopped while requests go on: each gets an answer, and nothing is printed about it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest

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
silent = Agent(ScriptedModel([Message("assistant", "", asks.tool_calls)]), tools=[wait], name="silent")
slow = Agent(ScriptedModel([asks]), tools=[wait], name="slow")
"""
_MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
from agentkit.cli.app import run
run()
"""


def _ask(url: str, agent: str, *, stream: bool) -> tuple[int, str]:
    body = {"model": agent, "stream": stream, "messages": [{"role": "user", "content": "a"}]}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as answer:
        return answer.status_code, answer.read().decode()


@pytest.mark.parametrize(
    ("agent", "stream", "status"), [("silent", False, 503), ("silent", True, 503), ("slow", True, 200)]
)
@pytest.mark.parametrize(("times", "grace"), [(1, "1"), (2, "300")])
def test_a_request_that_goes_on_is_told(
    tmp_path: Path, agent: str, stream: bool, status: int, times: int, grace: str
) -> None:
    (tmp_path / "slow.py").write_text(_SLOW)
    served = [sys.executable, "-c", _MAIN, "serve", "--agent", f"./slow.py:{agent}", "--port", "0", "--grace", grace]
    process = subprocess.Popen(
        [*served, "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        with ThreadPoolExecutor(1) as threads:
            asking = threads.submit(_ask, url, agent, stream=stream)
            assert process.stdout.readline() == "waits\n"
            for _ in range(times):
                process.send_signal(signal.SIGINT)
                time.sleep(0.3)  # two that come at once are one
            _, log = process.communicate(timeout=60)
            found, text = asking.result()
    finally:
        process.kill()
    assert found == status
    assert '"code":"stopped"' in text and "ask again" in text
    assert ('"One' in text) == (status == 200)
    assert "stopped; what was stored stays" in log and "Traceback" not in log
