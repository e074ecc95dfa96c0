"""`agentkit mcp`: an agent as a tool, called by the client of the official SDK."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.cli.conftest import MAIN, Run
from tests.tools.mcp.mcp_running import listens
from tests.waiting import LONG, reserved_port

SHOP = """
from agentkit import Agent, Layers, Message, ScriptedModel, ToolCall, tool
from agentkit.tools import ToolContext
from agentkit_prompts import AdditionalInfoPrompt, Template

@tool
def look(context: ToolContext, book: str) -> str:
    "Look up a book."
    context.progress("searching", done=1, total=2)
    print("a stray print")
    return f"7 of {book}"

@tool(approval="always")
def pay() -> str:
    "Pay."
    return "paid"

CURRENCY = {"type": "string", "enum": ["CHF", "EUR"]}
NEEDS = {"type": "object", "properties": {"currency": CURRENCY}, "required": ["currency"]}
INFO = AdditionalInfoPrompt(Template("Prices are in {{ currency }}.", params_schema=NEEDS))
CALLS = (ToolCall("c1", "look", '{"book": "Emma"}'), ToolCall("c2", "pay", "{}"))

def agent():
    def answer(sent):
        return "|".join(message.text for message in sent.messages)

    model = ScriptedModel.repeat(Message("assistant", tool_calls=CALLS), answer)
    return Agent(model, layers=Layers("You sell books.", before_input=INFO), tools=[look, pay], name="shop")
"""


@pytest.fixture
def command(folder: Path) -> list[str]:
    (folder / "shop.py").write_text(SHOP)
    (folder / "other.yaml").write_text("name: helper\ndescription: Helps.\nmodel: offline\n")
    return ["-c", MAIN, "mcp", "--agent", "./shop.py:agent"]


async def tools_of(client: Client) -> list[Any]:
    """List the tools, send an invalid call and a valid call, and return the tools."""
    heard: list[tuple[float, str | None]] = []

    async def record_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    tools = (await client.list_tools()).tools
    wrong: Any = await client.call_tool("shop", {"input": "Emma?", "currency": "USD", "colour": "red"})
    assert wrong.is_error and "currency" in wrong.content[0].text and "colour" in wrong.content[0].text
    right: Any = await client.call_tool(
        "shop", {"input": "Emma?", "currency": "CHF"}, progress_callback=record_progress
    )
    assert not right.is_error, right.content
    text = right.content[0].text
    assert "Prices are in CHF." in text and "7 of Emma" in text and "no person can be asked" in text
    assert [progress for progress, _ in heard] == sorted({progress for progress, _ in heard})
    assert heard[-1][1] == "step 2: asks the model"
    assert tools[0].input_schema["required"] == ["input", "currency"]
    assert tools[0].input_schema["properties"]["currency"]["enum"] == ["CHF", "EUR"]
    return tools


async def test_agents_are_tools_on_the_pipes_of_a_process(command: list[str]) -> None:
    arguments = [*command, "--agent", "other.yaml"]
    parameters = StdioServerParameters(command=sys.executable, args=arguments, env={**os.environ})
    async with Client(parameters) as client:
        tools = await tools_of(client)
    assert [(one.name, one.description) for one in tools[1:]] == [("helper", "Helps.")]


async def test_agents_are_tools_over_http(command: list[str]) -> None:
    with reserved_port() as port:
        process = subprocess.Popen([sys.executable, *command, "--port", str(port)], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            assert "serves shop" in process.stderr.readline()
            listens(port)
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                assert [one.name for one in await tools_of(client)] == ["shop"]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(LONG) in (0, 130)
            process.stderr.close()


def test_two_agents_with_the_same_name_are_refused(command: list[str], run: Run) -> None:
    result = run(*command[2:], "--agent", "./shop.py:agent")
    assert result.exit_code == 1 and "several agents have the name shop" in result.stderr
