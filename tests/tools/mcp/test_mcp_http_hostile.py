"""MCP servers with hostile HTTP: every call ends in a typed result, and the next call works."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping

import pytest

from agentkit import Agent, OfflineModel, ToolCall
from agentkit.tools import MCPServerError, MCPToolset, Tool, ToolContext, ToolResult
from tests.tools.mcp.mcp_http import MODES, hand_written
from tests.tools.mcp.mcp_running import command
from tests.waiting import longer

pytestmark = pytest.mark.long


async def ask(made: Tool) -> ToolResult:
    call = ToolCall("call_1", made.name)
    return await made.call(call, ToolContext(None, "run_1", "call_1"))


async def wait_for_call(tools: Mapping[str, Tool]) -> None:
    """Wait until the server has received a call that does not end."""
    while (await ask(tools["begun"])).content != "yes":
        await asyncio.sleep(0.01)


TOLD = {
    "endless": "more than 64,000,000 bytes",
    "events": "",
    "packed": "compressed (gzip) without a request for it",
    "page": "Unexpected content type: text/html",
    "elsewhere": "not followed",
    "broken": "error response",
    "half": "",
    "other id": "",
    "deep": "",
    "crowded": "more than 300,000 values",
}


@pytest.mark.parametrize("mode", TOLD)
async def test_an_invalid_answer_ends_the_call_in_an_error_and_the_next_call_works(mode: str) -> None:
    with hand_written() as url:
        async with MCPToolset(url) as server:
            tools = dict(zip(MODES, server, strict=True))
            result = await ask(tools[mode].with_changes(timeout=1) if mode == "other id" else tools[mode])
            after = await ask(tools["fine"])

    assert result.status == ("timeout" if mode == "other id" else "error")
    assert mode == "other id" or isinstance(result.error, MCPServerError)
    assert TOLD[mode] in str(result.content)
    assert "secret" not in str(result.content)
    assert len(str(result.content)) < 3_000
    assert after.content == "fine"


async def test_a_key_that_a_server_repeats_is_in_no_error_or_cause() -> None:
    with hand_written() as url:
        async with MCPToolset(f"{url}?key=QUERY-7f3a", headers={"X-Key": "Bearer KEY-52c1"}) as server:
            result = await ask(next(one for one in server if one.name == "repeats"))

    assert "wrong key ***" in str(result.content)
    error: BaseException | None = result.error
    texts = [str(result.content)]
    while error is not None:
        texts += [str(error), repr(vars(error)), repr(getattr(error, "error", ""))]
        error = error.__cause__ or error.__context__
    assert len(texts) > 4 and "KEY-52c1" not in "".join(texts) and "QUERY-7f3a" not in "".join(texts)


async def test_a_stream_of_many_events_is_read_with_any_line_ends() -> None:
    with hand_written() as url:
        async with MCPToolset(url) as server:
            result = await ask(next(one for one in server if one.name == "lines"))

    assert result.content == "fine"


async def test_a_stream_that_ends_repeatedly_is_opened_again_at_a_limited_rate() -> None:
    with hand_written() as url:
        async with MCPToolset(url) as server:
            tools = {one.name: one for one in server}
            for seconds in longer(1):
                result = await ask(tools["again"].with_changes(timeout=seconds))
                if opened := int(str((await ask(tools["opened"])).content)):
                    break

    assert result.status == "timeout"
    assert opened <= 3 * seconds + 20, "it is opened as fast as it ends"


@pytest.mark.parametrize("mode", ["silent", "flood", "heads", "resumed"])
async def test_a_timed_out_call_ends_its_connection_and_no_other_call(mode: str, patient: None) -> None:
    with hand_written() as url:
        async with MCPToolset(url) as server:
            tools = {one.name: one for one in server}
            closing = asyncio.create_task(ask(tools["closed"]))
            for seconds in longer(1):
                result = await ask(tools[mode].with_changes(timeout=seconds))
                if (await ask(tools["begun"])).content == "yes":
                    break
            closed = await closing
            sessions = await ask(tools["sessions"])

    assert result.status == "timeout"
    assert (closed.content, sessions.content) == ("yes", "1")


async def test_a_call_that_is_cancelled_ends_its_connection_too(patient: None) -> None:
    with hand_written() as url:
        async with MCPToolset(url) as server:
            tools = {one.name: one for one in server}
            call = asyncio.create_task(ask(tools["flood"]))
            await wait_for_call(tools)
            call.cancel()
            closed, sessions = await ask(tools["closed"]), await ask(tools["sessions"])

    assert (closed.content, sessions.content) == ("yes", "1")


async def test_a_server_that_ignores_the_end_of_a_call_is_replaced() -> None:
    with hand_written() as url:
        async with MCPToolset(url) as server:
            tools = {one.name: one for one in server}
            call = asyncio.create_task(ask(tools["untold"]))
            await wait_for_call(tools)
            call.cancel()
            closed, sessions = await ask(tools["closed"]), await ask(tools["sessions"])

    assert (closed.content, sessions.content) == ("yes", "2")


async def test_progress_with_invalid_numbers_is_skipped() -> None:
    with hand_written() as url:
        async with MCPToolset(url) as server:
            agent = Agent(OfflineModel(), tools=[one for one in server if one.name == "numbers"])
            result = await agent.run("Use numbers.")

    assert "fine" in result.output


def test_connection_errors_write_nothing_in_a_program_without_logging() -> None:
    program = f"""
import asyncio
from agentkit import Agent, OfflineModel, ToolCall
from agentkit.tools import MCPToolset, ToolContext
for source, name, arguments in (
    (URL, "page", "{{}}"),
    (URL, "packed", "{{}}"),
    ({command("garbage")!r}, "noise", '{{"size": 10}}'),
):
    with MCPToolset(source) as server:
        made = next(one for one in server if one.name == name)
        print(asyncio.run(made.call(ToolCall("1", name, arguments), ToolContext(None))).status)
"""
    with hand_written() as url:
        program = program.replace("URL", repr(url))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert (done.stdout.split(), done.stderr) == (["error", "error", "success"], "")
