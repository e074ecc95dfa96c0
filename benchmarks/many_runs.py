"""100,000 runs, 200 at once: memory does not grow, and no task, thread or connection remains.

Each run has a separate session and calls an async tool and a sync tool, which runs in a thread; every 20th run sends an
HTTP request to a local server instead.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import threading
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from harness import Figure, main

from agentkit import Agent, Composition, Message, OpenAIModel, ScriptedModel, Session, ToolCall, tool

RUNS = 100_000
AT_ONCE = 200
HTTP_EVERY = 20
CALLS = Message(
    "assistant", tool_calls=(ToolCall("a", "add", '{"a": 1, "b": 2}'), ToolCall("b", "look", '{"name": "Ada"}'))
)
REPLY = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Done."}}],
    }
).encode()


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await asyncio.sleep(0)
    return a + b


@tool
def look(name: str) -> str:
    """Look up a name."""
    return f"{name} is here"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reply to every request of a connection with the same completion."""
    while not reader.at_eof():
        with suppress(asyncio.IncompleteReadError):  # the client has disconnected
            head = await reader.readuntil(b"\r\n\r\n")
        if reader.at_eof():
            return writer.close()
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(REPLY))
        writer.write(REPLY)


def scripted() -> ScriptedModel:
    """Return a model that calls both tools, then answers."""

    def reply(sent: Composition) -> Message:
        sent.to_openai()
        return Message("assistant", "Done.") if len(sent.intermediate) else CALLS

    return ScriptedModel.repeat(reply, keep=0)


def resident() -> float:
    """Return the resident memory of the process in MiB."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure_runs(runs: int) -> list[Figure]:
    """Execute all runs, and return the remaining resources."""
    async with AsyncExitStack() as stack:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        http_model = OpenAIModel("m", base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
        agents = Agent(scripted(), "Be brief.", tools=[add, look]), Agent(http_model, "Be brief.")
        numbers = itertools.count()

        async def work(until: int) -> None:
            while (number := next(numbers)) < until:
                agent = agents[number % HTTP_EVERY == 0]
                result = await agent.run(f"Number {number}", session=Session())
                assert result.output == "Done."

        async def execute_until(until: int) -> None:
            await asyncio.gather(*[work(until) for _ in range(AT_ONCE)])

        await execute_until(runs // 5)
        before = resident()
        await execute_until(runs)
        growth = resident() - before
        await http_model.aclose()
        await asyncio.sleep(0.1)
    sockets = [name for name in _links() if name.startswith("socket:")]
    tasks = len(asyncio.all_tasks()) - 1
    threads = threading.active_count()
    name = f"{runs:,} runs, {AT_ONCE} at once"
    return [
        Figure(name, "memory", growth, "MiB more"),
        Figure(name, "tasks", tasks, "remain"),
        Figure(name, "sockets", len(sockets) - _LOOP_SOCKETS, "remain"),
        Figure(name, "threads", threads, "idle"),
    ]


_LOOP_SOCKETS = 2
"""Sockets of the event loop."""


def _links() -> Iterable[str]:
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of this listing is closed
            yield str(file.readlink())


def workload(rounds: int) -> Iterable[Figure]:
    """Measure all runs once."""
    del rounds
    return asyncio.run(measure_runs(RUNS))


if __name__ == "__main__":
    main(__doc__, {"many": workload})
