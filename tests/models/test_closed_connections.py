"""No connection stays open: when a request is cancelled at any point, and when the loop that opened it is closed."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from starlette.responses import Response

from agentkit import Agent, OpenAIModel, tool
from agentkit.prompts import PromptContext, ToolCall
from agentkit.testing import controlled_time
from agentkit.tools import MCPServerError, MCPToolset, ToolContext, http_tool
from tests.effort import thinned
from tests.models.asking import NOTHING_LEFT_OPEN, both, composed, model_for
from tests.servers import Asked, ChatServer, chat_reply, chunk, hangs, in_turn, serve, streams
from tests.waiting import LONG, eventually, until

pytestmark = NOTHING_LEFT_OPEN


@pytest.fixture
def own_server() -> Iterator[ChatServer]:
    """A server without connections of other tests."""
    with serve() as running:
        yield running


def run_program(program: str) -> str:
    """Run a Python program that warns of open connections; return its output."""
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_event_loops_of_earlier_runs_close_their_connections_in_a_running_loop(own_server: ChatServer) -> None:
    agent = Agent(model_for(own_server, own_server.on("kept", chat_reply("Hi"))))
    assert agent.run_sync("Hi").output == "Hi"
    assert own_server.connections == 1

    async def main() -> None:
        with controlled_time():
            pass

    asyncio.run(main())
    until(lambda: not own_server.connections)
    assert agent.run_sync("Hi").output == "Hi"


def test_connections_of_sync_runs_do_not_accumulate(own_server: ChatServer) -> None:
    own_server.on("many", chat_reply("Hi"))
    for _ in range(12):
        assert Agent(model_for(own_server, "many")).run_sync("Hi").output == "Hi"
        gc.collect()
    until(lambda: own_server.connections == 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is missing")
@pytest.mark.parametrize("ending", thinned(["del agent\ngc.collect()\n", ""]))
def test_a_forked_process_neither_uses_nor_closes_the_connections_of_its_parent(
    own_server: ChatServer, ending: str
) -> None:
    clients: list[object] = []

    def answer(asked: Asked) -> Response:
        clients.append(asked.client)
        return chat_reply("Hi")(asked)

    name = own_server.on("forked", answer)
    program = (
        "import gc\nimport os\nfrom time import monotonic\nfrom agentkit import Agent, OpenAIModel\n"
        f"agent = Agent(OpenAIModel({name!r}, base_url={own_server.url!r}))\n"
        "agent.run_sync('Hi')\nstart = monotonic()\n"
        "child = os.fork()\n"
        "if child:\n    assert os.waitpid(child, 0)[1] == 0\n"
        f"agent.run_sync('Hi')\nif child:\n    print(monotonic() - start)\n{ending}"
    )
    for _ in range(3):
        clients.clear()
        # A client closes a connection that was not used for five seconds, as on a busy machine.
        if float(run_program(program)) < 5:
            break
    of_parent, of_child, of_parent_again = clients
    assert of_child != of_parent
    assert of_parent_again == of_parent
    until(lambda: not own_server.connections)


def test_an_event_loop_with_a_task_that_does_not_end_closes_its_connections(own_server: ChatServer) -> None:
    may_end = threading.Event()
    tasks: list[asyncio.Task[None]] = []

    async def endless() -> None:
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.1)

    @tool
    async def begin() -> str:
        """Start a task."""
        tasks.append(asyncio.create_task(endless()))
        await asyncio.sleep(0)
        return "begun"

    own_server.on("begins", in_turn(chat_reply("", ("c", "begin", "{}")), chat_reply("Hi")))
    own_server.on("next", chat_reply("Hi"))
    try:
        assert Agent(model_for(own_server, "begins"), tools=[begin]).run_sync("Hi").output == "Hi"
        gc.collect()
        agent = Agent(model_for(own_server, "next"))
        assert agent.run_sync("Hi").output == "Hi"
        # The connection of the run that started the task is closed, although the task is still running.
        until(lambda: own_server.connections == 1)
        with controlled_time():
            pass
        until(lambda: not own_server.connections)
        assert not tasks[0].done()
    finally:
        may_end.set()


@both
@pytest.mark.parametrize("name", ["answers", "pauses", "silent"])
def test_a_request_that_is_cancelled_after_any_step_leaves_no_connection(
    own_server: ChatServer, name: str, stream: bool
) -> None:
    pause = streams(*[chunk(content="x")] * 5, chunk("stop"), pause=0.001)
    own_server.on(name, {"answers": chat_reply("Hi"), "pauses": pause, "silent": hangs(LONG)}[name])

    async def is_done(steps: int) -> bool:
        model = model_for(own_server, name)
        request = asyncio.create_task(model.request(composed(), on_delta=(lambda delta: None) if stream else None))
        for _ in range(steps):
            await asyncio.sleep(0)
        is_done = request.done()
        request.cancel()
        await asyncio.wait([request])
        await model.aclose()
        await eventually(lambda: not own_server.connections)
        return is_done

    for steps in range(40):
        if asyncio.run(is_done(steps)):
            break


class SilentServer:
    """Accepts connections and answers no TLS handshake. Counts started and closed connections."""

    def __init__(self) -> None:
        self.begun = self.closed = 0

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._read, "127.0.0.1", 0)
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        self.begun += 1
        while await reader.read(1000):
            pass
        self.closed += 1
        writer.close()

    async def __aexit__(self, *error: object) -> None:
        self._server.close()


async def ask_model(url: str) -> object:
    return await OpenAIModel("m", base_url=url, max_retries=0).request(composed())


async def ask_web_page(url: str) -> object:
    port = int(url.rpartition(":")[2])
    tool = http_tool(networks=["127.0.0.0/8"], ports=[port])
    return await tool.call(ToolCall("c", tool.name, json.dumps({"url": url})), ToolContext(None))


async def ask_mcp_server(url: str) -> object:
    tools = MCPToolset(url)
    try:
        return await tools.at(PromptContext(user_input="Hi"))
    finally:
        tools.close()


@pytest.mark.parametrize("ask", [ask_model, ask_web_page, ask_mcp_server])
def test_a_request_that_is_cancelled_during_the_tls_handshake_leaves_no_connection(ask: Callable[[str], Any]) -> None:
    async def main() -> None:
        server = SilentServer()
        async with server as url:
            request = asyncio.ensure_future(ask(url))
            await eventually(lambda: server.begun or request.done())
            assert server.begun
            request.cancel()
            with pytest.raises((asyncio.CancelledError, MCPServerError)):
                await request
            await eventually(lambda: server.closed == server.begun)

    asyncio.run(main())
