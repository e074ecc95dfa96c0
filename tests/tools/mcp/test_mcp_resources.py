"""Resources that results link to, progress, tasks, and missing commands of MCP servers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, ScriptedModel, ToolProgress
from agentkit.tools import MCPServerError, MCPServerLost, MCPToolset
from tests.runtime.scripts import calling

SERVER = """
import base64
import mcp_types as types
from mcp.server import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.stdio import stdio_server

server = MCPServer("library")


@server.resource("notes://a", mime_type="text/plain")
def note() -> str:
    return "The note."


@server.resource("files://logo.png", mime_type="image/png")
def logo() -> bytes:
    return b"\\x89PNG\\r\\n\\x1a\\npixels"


@server.tool()
def find() -> list[types.ContentBlock]:
    return [types.ResourceLink(type="resource_link", uri="notes://a", name="a")]


@server.tool()
async def work(ctx: Context) -> str:
    await ctx.report_progress(1, 2, "half")
    await ctx.report_progress(2, 2)
    return "worked"


server.run()
"""


TASKS = """
import json, sys

plain = {"type": "object"}
tools = [
    {"name": "slow", "inputSchema": plain, "execution": {"taskSupport": "required"}},
    {"name": "either", "inputSchema": plain, "execution": {"taskSupport": "optional"}},
    {"name": "never", "inputSchema": plain, "execution": {"taskSupport": "forbidden"}},
]
info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] in ("initialize", "tools/list"):
        answer["result"] = info if asked["method"] == "initialize" else {"tools": tools}
    else:
        answer["error"] = {"code": -32601, "message": "unknown"}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MCPToolset]:
    script = tmp_path_factory.mktemp("library") / "library.py"
    script.write_text(SERVER)
    with MCPToolset([sys.executable, str(script)], resources=True, timeout=30) as server:
        yield server


def results(result: Any) -> list[str]:
    return [message.text for message in result.messages if message.role == "tool"]


def test_a_model_can_read_the_resource_that_a_result_links_to(library: MCPToolset) -> None:
    read = calling(("read_resource", {"uri": "notes://a"}), ("read_resource", {"uri": "notes://none"}))
    logo = calling(("read_resource", {"uri": "files://logo.png"}))
    result = Agent(ScriptedModel([calling("find"), read, logo, "done"]), tools=library).run_sync("Go")
    linked, note, unknown, picture = results(result)

    assert "notes://a" in linked
    assert note == "The note."
    assert "read_resource failed" in unknown
    assert "logo.png" in str(result.messages[-2].content) or "image" in picture


def test_progress_of_a_server_reaches_a_listener(library: MCPToolset) -> None:
    heard: list[Any] = []
    Agent(ScriptedModel([calling("work"), "done"]), tools=[library]).run_sync("Go", on_event=heard.append)

    told = [(event.message, event.done, event.total) for event in heard if isinstance(event, ToolProgress)]
    assert told[0] == ("half", 1, 2)


async def test_one_binary_resource_does_not_fail_the_others(library: MCPToolset) -> None:
    assert [document.text for document in await library.documents()] == ["The note."]
    assert [problem.name for problem in library.problems if isinstance(problem, MCPServerError)] == ["files://logo.png"]
    with pytest.raises(MCPServerError) as caught:
        await library.documents("files://logo.png")
    assert caught.value.name == "files://logo.png"


def test_a_tool_that_needs_tasks_is_skipped_and_listed(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    with MCPToolset([sys.executable, str(tmp_path / "tasks.py")], timeout=30) as server:
        assert [one.name for one in server] == ["either", "never"]
        (problem,) = server.problems
    assert str(problem).startswith("tool slow: it runs only as a task")


@pytest.mark.parametrize("command", [["no-such-command-here", "x"], ["/nowhere/server"], ["/tmp"]])
def test_an_unknown_command_is_not_started(command: list[str]) -> None:
    with pytest.raises(MCPServerLost) as caught:
        list(MCPToolset(command))
    assert caught.value.name == command[0]
    assert not getattr(caught.value, "__notes__", [])


async def test_a_command_is_searched_in_the_folder_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("#!/bin/sh\nexit 3\n")
    script.chmod(0o755)
    with pytest.raises(MCPServerLost) as started:
        list(MCPToolset(["./serve.sh"], cwd=tmp_path))
    assert started.value.name == ""
    with pytest.raises(MCPServerLost) as missing:
        list(MCPToolset(["./serve.sh"]))
    assert missing.value.name == "./serve.sh"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MCPServerLost) as here:
        list(MCPToolset(["./serve.sh"]))
    assert here.value.name == ""


def test_without_the_extra_the_error_names_the_command_to_install_it() -> None:
    code = """
import sys
sys.modules["mcp"] = None
from agentkit.tools import MCPToolset, mcp_server, serve_mcp, ToolDefinitionError
makers = lambda: MCPToolset(["x"]), lambda: MCPToolset("http://x"), lambda: mcp_server([]), lambda: serve_mcp([])
for make in makers:
    try:
        make()
    except ToolDefinitionError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all("pip install 'agentkit-prompt-tree[mcp]'" in line for line in lines)
