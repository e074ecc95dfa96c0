"""Messages of a server between calls are read slowly; calls are not slowed, and no message is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, process_time, sleep, thread_time

import pytest

from agentkit import ToolCall
from agentkit.tools import MCPToolset, ToolContext
from agentkit_tools.mcp.cpu_pace import CPUPace
from tests.tools.mcp import unasked_peer
from tests.tools.mcp.unasked_peer import KINDS, WAIT_SECONDS

PEER = [sys.executable, str(Path(unasked_peer.__file__))]


@contextmanager
def served(way: str, kind: str) -> Iterator[str | list[str]]:
    if way == "pipes":
        yield [*PEER, way, kind]
        return
    with subprocess.Popen([*PEER, way, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        process.kill()


async def call_number(server: MCPToolset, name: str) -> int:
    made = next(one for one in server if one.name == name)
    result = await made.call(ToolCall("call_1", name), ToolContext(None, "run_1", "call_1"))
    return int(str(result.content))


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "kind"), [("pipes", "messages"), ("pipes", "questions"), *(("http", kind) for kind in KINDS)]
)
async def test_between_calls_a_server_uses_a_small_share_of_a_processor(way: str, kind: str) -> None:
    with served(way, kind) as where:
        async with MCPToolset(where) as server:
            sent = await call_number(server, "wait")
            start = process_time()
            sleep(WAIT_SECONDS)
            used = process_time() - start
            assert used < WAIT_SECONDS / 4
            if way == "pipes" or kind == "messages":  # the buffers of other sockets take long, or are too large
                for _ in range(100):  # pipes and sockets buffer some of it
                    if await call_number(server, "wait") > sent:
                        return
                raise AssertionError("it is not read any more")


async def test_rest_is_twenty_times_the_used_time_except_during_a_call() -> None:
    pace = CPUPace()
    await pace.rest()
    with pace.call():
        work(0.05)
        with pytest.raises(StopIteration):
            pace.rest().send(None)  # it ends without a wait
    start, used = monotonic(), work(0.05)
    await pace.rest()
    assert monotonic() - start > 15 * used


def work(seconds: float) -> float:
    """Use this CPU time of the thread, and return the used time."""
    start = thread_time()
    while thread_time() - start < seconds:
        pass
    return thread_time() - start
