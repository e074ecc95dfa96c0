"""An MCP server that breaks the protocol costs its time limit, and does not outlive the process that started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkit import ToolCall
from agentkit.tools import MCPServerError, MCPServerLost, MCPToolset, ToolContext, ToolResult
from tests.paths import ROOT
from tests.tools.mcp.mcp_running import is_alive

PEER = Path(__file__).parent / "raw_peer.py"


@pytest.fixture(scope="module")
def raw() -> Iterator[MCPToolset]:
    with MCPToolset([sys.executable, str(PEER), "plain"], timeout=2) as server:
        yield server


async def ask(server: MCPToolset, name: str, **arguments: object) -> ToolResult:
    made = next(one for one in server if one.original_name == name)
    return await made.call(ToolCall("call_1", made.name, json.dumps(arguments)), ToolContext(None, "run_1", "call_1"))


def test_a_server_that_never_lists_its_tools_is_given_up() -> None:
    server = MCPToolset([sys.executable, str(PEER), "no_list"], connect_timeout=2)
    try:
        with pytest.raises(MCPServerLost, match="did not answer within 2 seconds"):
            list(server)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("exponential", "x matches none of the allowed schemas"),
        ("catastrophic", "x should match"),
        ("endless", "leads back to itself"),
        ("malformed", "has an invalid output schema: outputSchema.properties.x.required must be a list"),
    ],
)
async def test_an_output_schema_takes_no_longer_than_it_may(raw: MCPToolset, name: str, complaint: str) -> None:
    result = await ask(raw, name)

    assert type(result.error) is MCPServerError
    assert complaint in str(result.content)
    assert (await ask(raw, "fine")).content == "ok"


@pytest.mark.parametrize("name", ["product", "unparsable", "batch", "deep", "huge", "mute", "bomb"])
async def test_a_line_that_is_no_answer_costs_the_time_limit_of_its_call(raw: MCPToolset, name: str) -> None:
    result = await ask(raw, name, **({"x": "text"} if name == "bomb" else {}))

    assert result.status in ("timeout", "error")
    assert (await ask(raw, "fine")).content == "ok"


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ignores_everything_ends_with_the_process_that_started_it(how: int) -> None:
    peer = [sys.executable, str(PEER), "stubborn"]
    code = (
        "import sys, time\nfrom agentkit.tools import MCPToolset\n"
        f"server = MCPToolset({peer!r})\nprint(next(iter(server)).description, flush=True)\n"
        "time.sleep(600)"
    )
    ours = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert ours.stdout is not None
    server = int(ours.stdout.readline())
    assert is_alive(server)
    os.kill(ours.pid, how)
    ours.wait()
    end = time.monotonic() + 30
    while is_alive(server) and time.monotonic() < end:
        time.sleep(0.1)
    assert not is_alive(server)
