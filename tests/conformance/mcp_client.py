"""An MCP client of agentkit for the conformance suite of the protocol.

Run the suite (Node 22 or newer):

    npx @modelcontextprotocol/conformance client --command "python -m tests.conformance.mcp_client" --suite all
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
from typing import Any

import httpx2

from agentkit import Agent, ScriptedModel, ToolCall
from agentkit.tools import MCPLoginError, MCPServerError, MCPToolset, mcp_login

_LOGINS = 3
"""Maximum number of logins, for servers that require more rights later."""


def visit(page: str) -> None:
    """Open the page of a login as a browser does."""
    threading.Thread(target=lambda: httpx2.get(page, follow_redirects=True), daemon=True).start()


async def log_in(address: str, scope: str = "") -> None:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    client = {"client_id": context.get("client_id", ""), "client_secret": context.get("client_secret", "")}
    await mcp_login(address, visit, scope=scope, timeout=10, **client)


async def call_tools(address: str) -> None:
    """Call each tool in a run whose person approves all forms."""
    async with MCPToolset(address, approval="never", connect_timeout=40) as server:
        arguments = {"add_numbers": {"a": 5, "b": 3}}
        for tool in [*server]:
            call = ToolCall("c1", tool.name, json.dumps(arguments.get(tool.name, {})))
            agent: Agent[Any] = Agent(ScriptedModel([[call], "done"]), "You test.", tools=server)
            result = await agent.run("Go.", approve=lambda call: True)
            error = result.journal.tool_results[0].error
            if isinstance(error, MCPServerError):
                raise error


async def main(address: str) -> None:
    scope = ""
    for _ in range(_LOGINS):
        try:
            await call_tools(address)
            return
        except MCPLoginError as error:
            if error.reason == "scope":
                scope = str(error).partition("rights (")[2].partition(")")[0]
            await log_in(address, scope)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = folder
        asyncio.run(main(sys.argv[-1]))
