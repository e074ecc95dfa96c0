"""Tools of a real MCP server, over its pipes and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import INVALID_PARAMS

from agentkit import Agent, Message, ScriptedModel, ToolCall
from agentkit.prompts import Image, PromptContext
from agentkit.tools import (
    DynamicToolset,
    MCPServerError,
    MCPServerLost,
    MCPToolset,
    Tool,
    ToolContext,
    ToolDefinitionError,
    ToolFailure,
    ToolResult,
    Toolset,
    tool,
)
from tests.tools.mcp.mcp_running import HTTPPeer, command, ends, http_server, is_alive, raw_command
from tests.waiting import eventually, longer, until

CONTEXT = PromptContext(user_input="Go")


async def ask(made: Tool, **arguments: Any) -> ToolResult:
    call = ToolCall("call_1", made.name, json.dumps(arguments))
    return await made.call(call, ToolContext(None, "run_1", "call_1"))


def named(tools: Toolset, name: str) -> Tool:
    return next(one for one in tools if one.original_name == name)


@pytest.fixture(scope="module")
def kept_peer() -> Iterator[HTTPPeer]:
    """One server for all tests that do not change it: its start takes a second."""
    with http_server("honest") as peer:
        yield peer


@pytest.fixture(params=["pipes", "http"], scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[MCPToolset]:
    """One server for all tests that do not change it."""
    source = command("honest") if request.param == "pipes" else request.getfixturevalue("kept_peer").url
    with MCPToolset(source) as toolset:
        yield toolset


@pytest.fixture(scope="module")
def paged() -> Iterator[MCPToolset]:
    with MCPToolset(command("paged")) as toolset:
        yield toolset


@pytest.fixture
async def growing(server: MCPToolset) -> AsyncIterator[MCPToolset]:
    """A server that gets an additional tool, which is removed afterwards."""
    yield server
    await ask(named(server, "shrink"))
    assert await eventually(lambda: "sprout" not in server)


async def test_tools_are_listed_with_names_that_every_provider_accepts_and_called_by_their_names(
    server: MCPToolset,
) -> None:
    read = named(server, "files.read")

    assert read.name.startswith("files_read_")
    assert (await ask(read, path="a.txt")).content == "content of a.txt"
    assert (await ask(named(server, "add"), a=2, b=3)).content == "5"
    assert server.problems == ()


async def test_a_structured_result_is_the_value(server: MCPToolset) -> None:
    assert (await ask(named(server, "add"), a=2, b=3)).value == {"result": 5}


async def test_arguments_are_validated_before_any_request(server: MCPToolset) -> None:
    result = await ask(named(server, "add"), a="many", c=1)

    assert result.status == "error"
    assert "b: is required" in str(result.content) and "a: " in str(result.content)


async def test_a_tool_that_fails_in_the_server_is_an_error_result(server: MCPToolset) -> None:
    result = await ask(named(server, "fail"), why="because")

    assert result.status == "error"
    assert isinstance(result.error, ToolFailure)
    assert "fail" in str(result.content)


async def test_hints_become_policy(server: MCPToolset) -> None:
    read, wipe, add = (named(server, name).policy for name in ("files.read", "wipe", "add"))

    assert (read.sequential, read.approval, read.retries) == (False, "never", 1)
    assert (wipe.sequential, wipe.approval, wipe.retries) == (True, "always", 0)
    assert (add.sequential, add.approval, add.retries) == (True, "never", 0)
    assert (await ask(named(server, "wipe"))).status == "denied"


async def test_options_of_the_developer_override_the_hints(kept_peer: HTTPPeer) -> None:
    with MCPToolset(kept_peer.url, approval="never", timeout=300) as server:
        assert (await ask(named(server, "wipe"))).content == "wiped"
        assert named(server, "wipe").policy.timeout == 300


async def test_it_composes_like_any_toolset(server: MCPToolset) -> None:
    @tool
    def here() -> str:
        return "here"

    both = Toolset([here]) + server.filtered(lambda one: one.original_name == "files.read").prefixed("far_")

    assert both[0].name == "here"
    assert both[1].original_name == "far_files.read"
    assert (await ask(both[1], path="b")).content == "content of b"
    assert len(server[1:3]) == 2 and "add" in server


def test_two_servers_with_the_same_names_conflict_if_they_are_combined(server: MCPToolset, kept_peer: HTTPPeer) -> None:
    with MCPToolset(kept_peer.url) as other:
        with pytest.raises(ToolDefinitionError) as caught:
            server + other
        assert set(caught.value.names) == {one.name for one in server}
        assert len(server + other.prefixed("other_")) == 2 * len(server)


async def test_a_changed_list_applies_to_the_next_turn(growing: MCPToolset) -> None:
    turn = DynamicToolset(lambda context: growing.prefixed("x_"))
    assert "x_sprout" not in await turn.at(CONTEXT)

    await ask(named(growing, "grow"))

    assert await eventually(lambda: "sprout" in growing)
    assert "sprout" in await growing.at(CONTEXT)
    assert "x_sprout" in await turn.at(CONTEXT)
    assert (await ask(named(growing, "sprout"))).content == "a new leaf"


def test_it_can_be_used_from_any_event_loop_and_from_several_at_once(server: MCPToolset) -> None:
    add = named(server, "add")
    seen: list[Any] = []

    def run(number: int) -> None:
        for step in range(3):
            seen.append(asyncio.run(ask(add, a=number, b=step)).value["result"])

    threads = [threading.Thread(target=run, args=(10 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(seen) == sorted(10 * number + step for number in range(4) for step in range(3))


def test_an_agent_uses_it_in_several_runs(server: MCPToolset) -> None:
    call = Message("assistant", "", (ToolCall("call_1", "add", '{"a": 1, "b": 2}'),))
    agent = Agent(ScriptedModel.repeat(call, "done"), tools=server)

    for _ in range(3):
        result = agent.run_sync("Add")
        assert [message.text for message in result.messages if message.role == "tool"] == ["3"]


async def test_calls_run_concurrently(server: MCPToolset) -> None:
    meet = named(server, "meet")

    results = await asyncio.gather(*(ask(meet, count=5) for _ in range(5)))

    assert [result.content for result in results] == ["met"] * 5


async def test_a_call_that_takes_too_long_times_out_and_is_cancelled_in_the_server(
    server: MCPToolset, tmp_path: Path, patient: None
) -> None:
    mark = tmp_path / "mark"
    for seconds in longer(0.5):
        result = await ask(named(server, "wait").with_changes(timeout=seconds), seconds=600, mark=str(mark))
        if mark.exists():  # the call had reached the server
            break

    assert result.status == "timeout"
    assert await eventually(lambda: mark.read_text() == "cancelled")
    assert (await ask(named(server, "add"), a=1, b=1)).content == "2"


async def test_cancelling_the_caller_cancels_the_call_in_the_server(server: MCPToolset, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    calling = asyncio.create_task(ask(named(server, "wait"), seconds=600, mark=str(mark)))
    assert await eventually(lambda: mark.exists() and mark.read_text() == "started")
    calling.cancel()

    with pytest.raises(asyncio.CancelledError):
        await calling
    assert await eventually(lambda: mark.read_text() == "cancelled")


async def test_resources_are_documents_and_parts(server: MCPToolset) -> None:
    listed = {resource.uri: resource.name for resource in await server.resources()}
    (note,) = await server.documents("notes://today")
    (logo,) = await server.parts("pixels://logo")

    assert listed == {"notes://today": "today", "pixels://logo": "logo"}
    assert (note.id, note.source, note.trust) == ("notes://today", "notes://today", "untrusted")
    assert note.text == "# Today\nNothing happened."
    assert note.metadata["mime_type"] == "text/markdown"
    assert isinstance(logo, Image) and logo.read().endswith(b"pixels") and logo.mime == "image/png"


async def test_a_resource_that_is_not_text_or_unknown_is_an_error_with_its_name_or_code(server: MCPToolset) -> None:
    with pytest.raises(MCPServerError) as not_text:
        await server.documents("pixels://logo")
    assert (not_text.value.name, not_text.value.code) == ("pixels://logo", None)
    with pytest.raises(MCPServerError) as unknown:
        await server.documents("nothing://here")
    assert (unknown.value.name, unknown.value.code) == ("", INVALID_PARAMS)


async def test_prompts_are_messages(server: MCPToolset) -> None:
    (about,) = await server.prompts()
    messages = await server.prompt("review", {"code": "x = 1"})

    assert about.name == "review" and about.description == "Ask for a review."
    assert messages == (Message("user", "Review this in a calm tone: x = 1"),)
    context = PromptContext(user_input="Go on", conversation=messages)
    assert context.conversation[0].text.startswith("Review")


async def test_all_problems_of_the_arguments_of_a_prompt_are_named(server: MCPToolset) -> None:
    with pytest.raises(MCPServerError) as wrong:
        await server.prompt("review", {"tome": "x", "tone": 3})  # type: ignore[dict-item]
    assert wrong.value.name == "review"
    assert [problem.path for problem in wrong.value.problems] == ["code", "tome", "tone"]
    with pytest.raises(MCPServerError) as unknown:
        await server.prompt("reviews")
    assert (unknown.value.name, unknown.value.problems) == ("reviews", ())


@pytest.mark.long
async def test_a_server_killed_during_a_call_is_an_error_for_the_model_and_the_next_call_reconnects(
    tmp_path: Path,
) -> None:
    mark = str(tmp_path / "mark")
    async with MCPToolset(command("honest")) as server:
        first = await ask(named(server, "die"), mark=mark)
        tail = server.stderr_tail
        second = await ask(named(server, "die"), mark=mark)

    assert first.status == "error"
    assert isinstance(first.error, MCPServerLost)
    assert "exited before its response" in str(first.content)
    assert tail == "goodbye, cruel world"
    assert "cruel" not in str(first.content)
    assert second.ok and str(second.content).startswith("alive again")


@pytest.mark.long
async def test_a_call_that_only_reads_is_repeated_automatically(tmp_path: Path) -> None:
    async with MCPToolset(command("honest")) as server:
        result = await ask(named(server, "die_reading"), mark=str(tmp_path / "mark"))

    assert result.ok and str(result.content).startswith("alive again")


@pytest.mark.long
async def test_an_http_server_killed_during_a_call_is_reached_again_after_its_restart(
    http_peer: HTTPPeer, tmp_path: Path
) -> None:
    mark = str(tmp_path / "mark")
    async with MCPToolset(http_peer.url) as server:
        died = await ask(named(server, "die"), mark=mark)
        http_peer.kill()
        gone = await ask(named(server, "add"), a=1, b=2)
        http_peer.start()
        back = await ask(named(server, "add"), a=1, b=2)

    assert isinstance(died.error, MCPServerLost) and isinstance(gone.error, MCPServerLost)
    assert "exited before its response" in str(died.content)
    assert "cannot be reached" in str(gone.content)
    assert back.content == "3"


async def test_a_server_that_died_between_two_calls_is_restarted_without_an_error() -> None:
    async with MCPToolset(raw_command("plain")) as server:
        pid = int(str((await ask(named(server, "pid"))).content))
        session = server._connection._sessions._now
        assert session is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(session.closing.is_set)  # the end of the server was noticed
        result = await ask(named(server, "pid"))

    assert result.ok and result.content != str(pid)


@pytest.mark.long
async def test_many_calls_in_flight_all_end_when_the_server_dies(tmp_path: Path) -> None:
    async with MCPToolset(command("honest")) as server:
        wait, marks = named(server, "wait"), [tmp_path / f"mark {number}" for number in range(5)]
        waiting = [asyncio.create_task(ask(wait, seconds=600, mark=str(mark))) for mark in marks]
        assert await eventually(lambda: all(mark.exists() for mark in marks))
        await ask(named(server, "die"), mark=str(tmp_path / "mark"))
        results = await asyncio.gather(*waiting)
        after = await ask(named(server, "add"), a=1, b=1)

    assert all(isinstance(result.error, MCPServerLost) for result in results)
    assert after.content == "2"


def test_closing_ends_the_process_and_the_thread_and_later_calls_are_errors() -> None:
    before = set(threading.enumerate())
    server = MCPToolset(raw_command("plain"))
    pid = int(str(asyncio.run(ask(named(server, "pid"))).content))
    assert is_alive(pid)
    fine = named(server, "fine")
    server.close()
    server.close()

    assert ends(pid)
    own = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("agentkit-mcp")]
    until(lambda: not any(thread.is_alive() for thread in own))
    result = asyncio.run(ask(fine))
    assert "was closed by this program" in str(result.content)


def test_closing_during_a_call_ends_the_call(tmp_path: Path) -> None:
    server = MCPToolset(command("honest"))
    wait = named(server, "wait")
    mark = tmp_path / "mark"
    threading.Thread(target=lambda: until(mark.exists) and server.close()).start()

    result = asyncio.run(ask(wait, seconds=600, mark=str(mark)))

    assert result.status == "error"
    assert isinstance(result.error, MCPServerLost)


@pytest.mark.long
def test_a_server_that_ignores_requests_to_end_is_killed() -> None:
    server = MCPToolset(command("stubborn"))
    pid = int(str(asyncio.run(ask(named(server, "pid"))).content))
    server.close()

    assert ends(pid)


@pytest.mark.long
def test_an_unclosed_toolset_ends_its_server_when_it_is_deleted_or_the_process_ends(tmp_path: Path) -> None:
    server = MCPToolset(command("honest"))
    pid = int(str(asyncio.run(ask(named(server, "pid"))).content))
    del server
    import gc

    gc.collect()
    assert ends(pid)

    program = f"""
import asyncio, json
from agentkit import ToolCall
from agentkit.tools import MCPToolset, ToolContext
server = MCPToolset({command("honest")!r})
made = next(one for one in server if one.name == "pid")
print(asyncio.run(made.call(ToolCall("1", "pid"), ToolContext(None))).content)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert ends(int(done.stdout))


async def test_output_of_a_server_is_not_in_our_streams(capfd: pytest.CaptureFixture[str]) -> None:
    async with MCPToolset(command("honest")) as server:
        result = await ask(named(server, "noise"), size=100_000)
        assert await eventually(lambda: server.stderr_tail.endswith("mmm"))
        assert len(server.stderr_tail) <= 8_192

    assert result.content == "quiet"
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


async def test_every_call_contains_its_idempotency_key(paged: MCPToolset) -> None:
    result = await ask(paged[0])

    assert result.content == ToolContext(None, "run_1", "call_1").idempotency_key


def test_a_list_in_pages_is_read_to_its_end(paged: MCPToolset) -> None:
    assert [one.name for one in paged] == [f"tool_{page}" for page in range(5)]


async def test_a_server_of_an_older_protocol_is_used_in_this_protocol() -> None:
    async with MCPToolset(command("older")) as server:
        assert (await ask(named(server, "add"), a=1, b=2)).content == "3"
        await ask(named(server, "grow"))
        assert await eventually(lambda: "sprout" in server)


async def test_a_command_has_only_the_passed_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_SECRET", "hidden")
    async with MCPToolset(raw_command("plain"), env={"GIVEN": "seen"}, cwd="/") as server:
        shown = json.loads(str((await ask(named(server, "environment"))).content))

    assert "OUR_SECRET" not in shown and shown["GIVEN"] == "seen"
    assert shown["PWD"] == "/"


async def test_headers_reach_the_server_and_appear_in_no_message(kept_peer: HTTPPeer) -> None:
    async with MCPToolset(kept_peer.url, headers={"X-Token": "s3cret"}) as server:
        assert (await ask(named(server, "header"), name="x-token")).content == "s3cret"
        assert "s3cret" not in repr(server)


@pytest.mark.long
async def test_a_custom_transport_is_used_for_each_connection(http_peer: HTTPPeer, tmp_path: Path) -> None:
    from mcp.client.streamable_http import streamable_http_client

    made: list[int] = []

    def transport() -> Any:
        made.append(1)
        return streamable_http_client(http_peer.url)

    async with MCPToolset(transport) as server:
        await ask(named(server, "die"), mark=str(tmp_path / "mark"))
        http_peer.kill()
        http_peer.start()
        assert (await ask(named(server, "add"), a=1, b=2)).content == "3"

    assert len(made) == 2


async def test_parameters_of_the_sdk_are_a_command_too() -> None:
    from mcp import StdioServerParameters

    first, *rest = raw_command("plain")
    async with MCPToolset(StdioServerParameters(command=first, args=rest)) as server:
        assert "fine" in server


@pytest.mark.parametrize(
    ("source", "options", "names"),
    [
        ("python server.py", {}, ["server"]),
        ("ftp://host/mcp", {}, ["server"]),
        ("http://[broken", {}, ["server"]),
        (["python"], {"headers": {"a": "b"}}, ["headers"]),
        ("http://host/mcp", {"env": {"a": "b"}, "cwd": "/"}, ["env", "cwd"]),
        ("ftp://host/mcp", {"env": {"a": "b"}}, ["server", "env", "cwd"]),
        ([], {}, ["server"]),
        (7, {}, ["server"]),
    ],
)
def test_an_invalid_source_of_a_server_is_refused_by_the_constructor(
    source: Any, options: Any, names: list[str]
) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        MCPToolset(source, **options)
    assert list(caught.value.names) == names


def test_an_agent_has_the_tools_of_the_server_at_the_start_of_a_run(growing: MCPToolset) -> None:
    def call(name: str) -> Message:
        return Message("assistant", "", (ToolCall("call_1", name),))

    model = ScriptedModel([call("sprout"), call("grow"), "done", call("sprout"), "done"])
    agent = Agent(model, tools=growing)
    before = agent.run_sync("Go")
    assert until(lambda: "sprout" in growing)
    after = agent.run_sync("Go")

    shown = [[message.text for message in run.messages if message.role == "tool"] for run in (before, after)]
    assert shown[0][0].startswith("Unknown tool 'sprout'")
    assert shown[0][1] == "grown"
    assert shown[1] == ["a new leaf"]


def test_creating_an_agent_starts_no_server() -> None:
    server = MCPToolset(["/no/such/program"])
    agent = Agent(ScriptedModel(["done"]), tools=server)

    with pytest.raises(MCPServerLost):
        agent.run_sync("Go")
    server.close()
