"""No connection stays open: when a request is cancelled at any point, and when the loop that opened it is closed."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from agentkit import Agent, OpenAIModel, tool
from agentkit.prompts import PromptContext, ToolCall
from agentkit.testing import controlled_time
from agentkit.tools import MCPServerError, MCPToolset, ToolContext, http_tool
from tests.models.asking import NOTHING_LEFT_OPEN, both, composed, model_for
from tests.servers import ChatServer, chunk, hangs, in_turn, says, serve, streams
from tests.waiting import LONG, eventually, until

pytestmark = NOTHING_LEFT_OPEN


@pytest.fixture
def own_server() -> Iterator[ChatServer]:
    """A server without connections of other tests."""
    with serve() as running:
        yield running


def fork() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def control_time() -> None:
    with controlled_time():
        pass


@pytest.mark.parametrize(
    "close_loops",
    [control_time, pytest.param(fork, marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"))],
)
def test_loops_of_earlier_runs_close_their_connections_in_a_running_loop(
    own_server: ChatServer, close_loops: Callable[[], None]
) -> None:
    agent = Agent(model_for(own_server, own_server.on("kept", says("Hi"))))
    assert agent.run_sync("Hi").output == "Hi"
    assert own_server.connections == 1

    async def main() -> None:
        close_loops()

    asyncio.run(main())
    until(lambda: not own_server.connections)
    assert agent.run_sync("Hi").output == "Hi"


def test_a_loop_with_a_task_that_does_not_end_closes_its_connections(own_server: ChatServer) -> None:
    may_end = threading.Event()
    tasks: list[asyncio.Task[None]] = []

    async def endless() -> None:
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(LONG)

    @tool
    async def begin() -> str:
        """Begin a task."""
        tasks.append(asyncio.create_task(endless()))
        await asyncio.sleep(0)
        return "begun"

    name = own_server.on("begins", in_turn(says("", ("c", "begin", "{}")), says("Hi")))
    assert Agent(model_for(own_server, name), tools=[begin]).run_sync("Hi").output == "Hi"
    until(lambda: not own_server.connections)
    may_end.set()


@both
@pytest.mark.parametrize("name", ["answers", "pauses", "silent"])
def test_a_request_that_is_cancelled_after_any_step_leaves_no_connection(
    own_server: ChatServer, name: str, stream: bool
) -> None:
    pause = streams(*[chunk(content="x")] * 5, chunk("stop"), pause=0.001)
    own_server.on(name, {"answers": says("Hi"), "pauses": pause, "silent": hangs(LONG)}[name])

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
    """Accepts connections and answers no TLS handshake. Counts the connections that began one, and those closed."""

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
