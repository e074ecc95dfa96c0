"""Calls of servers and MCP tools in the vocabulary of other libraries: the message names the right call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agentkit import Agent, ScriptedModel
from agentkit.errors import AgentDefinitionError
from agentkit.server import Access, Server, add_token, serve
from agentkit.tools import MCPToolset, ToolDefinitionError
from tests.wrong_calls import check_message

agent = Agent(ScriptedModel.repeat("Hello."), name="shop")
server: Any = Server
access: Any = Access
serving: Any = serve
toolset: Any = MCPToolset


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (
            lambda: server([agent], tokens={"secret": "ann"}),
            TypeError,
            "access=Access(path) with a file that add_token",
        ),
        (lambda: server([agent], port=8000), TypeError, "serve(server, host=..., port=...)"),
        (lambda: server([agent], access="access.yaml"), AgentDefinitionError, "an Access(path)"),
        (lambda: server(agent), AgentDefinitionError, "expected a list of agents"),
        (lambda: access(tokens={"secret": "ann"}), TypeError, "add_token(path, name, tenant), then Access(path)"),
        (lambda: serving([agent], token="secret"), TypeError, "serve(Server([agent], access=Access(path)))"),
        (lambda: serving([agent]), AgentDefinitionError, "such as Server([agent])"),
        (lambda: server([agent]).run(), AttributeError, "agentkit.server.serve(server, port=8000)"),
        (lambda: toolset("python", args=["server.py"]), ToolDefinitionError, "MCPToolset([command, argument, ...])"),
        (lambda: toolset(command="python"), TypeError, "MCPToolset([command, argument, ...])"),
    ],
)
def test_the_message_names_the_right_call(wrong: Callable[[], object], error: type[Exception], message: str) -> None:
    check_message(wrong, error, message)


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        ("agentkit.server", "create_app", r"use agentkit\.server\.Server\(\[agent\]\), which is an ASGI app"),
        ("agentkit.tools", "MCPServer", r"use agentkit\.tools\.MCPToolset\(\[command, argument, \.\.\.\]\)"),
        ("agentkit", "MCPServerStdio", r"use agentkit\.tools\.MCPToolset\(\[command, argument, \.\.\.\]\)"),
    ],
)
def test_modules_name_the_class(module: str, name: str, message: str) -> None:
    with pytest.raises(ImportError, match=message):
        exec(f"from {module} import {name}")


def test_a_server_with_tokens_is_an_asgi_application(tmp_path: Path) -> None:
    path = str(tmp_path / "access.yaml")
    token = add_token(path, "web", "ann")
    request = {"model": "shop", "messages": [{"role": "user", "content": "Hi"}]}
    with TestClient(Server([agent], access=Access(path))) as client:
        assert client.post("/v1/chat/completions", json=request).status_code == 401
        headers = {"Authorization": f"Bearer {token}"}
        answer = client.post("/v1/chat/completions", json=request, headers=headers).json()
    assert answer["choices"][0]["message"]["content"] == "Hello."


def test_a_toolset_accepts_a_command_as_one_list() -> None:
    # The server starts when its tools are first read.
    assert MCPToolset(["python", "server.py"]) is not None
