"""MCP servers that lie, flood, hang or crash: each call ends in a typed result, and the agent continues."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from mcp_types import CallToolResult, ImageContent

from agentkit import Agent, Message, ScriptedModel, ToolCall
from agentkit.prompts import Audio, File, Image, Text
from agentkit.tools import (
    MCPServerError,
    MCPServerLost,
    MCPToolset,
    Tool,
    ToolContext,
    ToolDefinitionError,
    ToolFailure,
    ToolResult,
)
from agentkit_tools.mcp.content import to_result
from agentkit_tools.mcp.target import Target
from tests.tools.mcp.mcp_running import command, raw_command
from tests.waiting import until


async def ask(made: Tool, **arguments: Any) -> ToolResult:
    call = ToolCall("call_1", made.name, json.dumps(arguments))
    return await made.call(call, ToolContext(None, "run_1", "call_1"))


@pytest.fixture(scope="module")
def liar() -> Iterator[MCPToolset]:
    with MCPToolset(command("liar")) as server:
        yield server


def named(server: MCPToolset, name: str) -> Tool:
    return next(one for one in server if one.original_name == name)


def test_invalid_tools_are_skipped_and_each_is_reported(liar: MCPToolset) -> None:
    problems = [problem for problem in liar.problems if isinstance(problem, ToolDefinitionError)]
    assert sorted(problem.tool for problem in problems) == ["  ", "bulky", "nonsense", "taken", "twice", "wordy"]
    assert named(liar, "twice").description == "first"


async def test_an_invalid_schema_causes_no_crash(liar: MCPToolset) -> None:
    assert (await ask(named(liar, "pattern"), x="(")).status in ("success", "error")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("wrong_shape", "n: expected an integer"),
        ("no_structure", "has an output schema but did not return structured content"),
    ],
)
async def test_a_result_that_does_not_match_its_output_schema_is_an_error(
    liar: MCPToolset, name: str, told: str
) -> None:
    result = await ask(named(liar, name))

    assert result.status == "error"
    assert type(result.error) is MCPServerError
    assert told in str(result.content)


def test_a_number_without_a_json_form_is_shown_as_text() -> None:
    answer = CallToolResult(content=[], structured_content={"a": [float("inf")], "b": float("nan")})
    assert json.loads(str(to_result(answer, "t").content)) == {"a": ["Infinity"], "b": "NaN"}


async def test_a_result_with_only_structured_content_is_shown_as_json(liar: MCPToolset) -> None:
    result = await ask(named(liar, "right_shape"))

    assert (result.status, result.content, result.value) == ("success", '{"n": 3}', {"n": 3})


async def test_an_error_with_data_keeps_its_data(liar: MCPToolset) -> None:
    failing, mute = await ask(named(liar, "failing")), await ask(named(liar, "mute"))

    assert isinstance(failing.error, ToolFailure)
    assert (failing.content, failing.error.data) == ('no\n{"code": 7}', {"code": 7})
    assert (mute.status, mute.content) == ("error", "mute failed and gave no reason")


async def test_a_refusal_in_the_protocol_is_an_error_with_its_text(liar: MCPToolset) -> None:
    result = await ask(named(liar, "refused"))

    assert type(result.error) is MCPServerError  # not lost, for any code
    assert "not today (code -32000)" in str(result.content)


async def test_a_server_that_repeats_its_question_is_refused(liar: MCPToolset) -> None:
    result = await ask(named(liar, "asking"))

    assert result.status == "error"
    assert "rounds" in str(result.content)


async def test_content_of_every_kind_becomes_parts(liar: MCPToolset) -> None:
    result = await ask(named(liar, "mixed"))
    look, image, broken, audio, _, file, _, embedded, link = tuple(result.content)

    assert isinstance(image, Image) and image.mime == "image/png"
    assert isinstance(audio, Audio) and audio.read() == b"ID3"
    assert isinstance(file, File) and (file.label, file.mime) == ("report.pdf", "application/pdf")
    assert look == Text("look:") and embedded == Text("embedded text")
    assert broken == Text("[image omitted: its base64 cannot be decoded]")
    assert link == Text("[resource: b at notes://b: more]")


async def test_a_flood_of_text_is_cut_and_a_flood_of_media_becomes_notes(
    liar: MCPToolset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit_tools.mcp.content._MAX_MEDIA_BYTES", 320_000)
    text = await ask(named(liar, "flood"), size=5_000_000)
    media = await ask(named(liar, "pictures"), count=5)

    assert text.status == "too_large"
    assert len(str(text.content)) < 101_000
    assert text.whole is not None and len(text.whole) == 5_000_000
    kinds = [type(part).__name__ for part in media.content]
    assert kinds == ["Image", "Image", "Image", "Text", "Text"]


def test_a_flood_of_small_media_becomes_notes_too() -> None:
    image = ImageContent(type="image", data="eA==", mime_type="image/png")
    result = to_result(CallToolResult(content=[image] * 5_000), "t")
    kinds = [type(part).__name__ for part in result.content]
    assert kinds == ["Image"] * 512 + ["Text"] * 4_488


def test_an_agent_continues_after_every_invalid_answer(liar: MCPToolset) -> None:
    lies = ["wrong_shape", "no_structure", "mute", "refused", "asking", "failing"]
    calls = tuple(ToolCall(f"call_{index}", name) for index, name in enumerate(lies))
    model = ScriptedModel([Message("assistant", "", calls), "I went on."])

    result = Agent(model, tools=liar).run_sync("Go", approve=lambda call: False)

    assert result.output == "I went on."
    assert sum(message.role == "tool" for message in result.messages) == len(lies)


@pytest.mark.long
def test_an_endless_list_of_tools_is_refused() -> None:
    with MCPToolset(command("bare")) as server:
        assert list(server) == []
    endless = MCPToolset(command("endless"))
    try:
        with pytest.raises(MCPServerError) as caught:
            list(endless)
        assert (type(caught.value), caught.value.limit) == (MCPServerError, 20_000)
    finally:
        endless.close()


def test_a_server_that_crashes_immediately_is_an_error_with_the_end_of_its_stderr_as_a_note() -> None:
    server = MCPToolset(raw_command("crash"))
    try:
        with pytest.raises(MCPServerLost) as caught:
            list(server)
    finally:
        server.close()
    assert any("cannot find my config" in note for note in caught.value.__notes__)


def test_the_stderr_of_a_server_is_shown_without_its_keys() -> None:
    program = "import os, sys; sys.exit('wrong key ' + os.environ['API_KEY'] + ' in ' + os.environ['PLACE'])"
    server = MCPToolset([sys.executable, "-c", program], env={"API_KEY": "key-52c17f3a", "PLACE": sys.prefix})
    try:
        with pytest.raises(MCPServerLost) as caught:
            list(server)
        assert f"wrong key *** in {sys.prefix}" in server.stderr_tail
    finally:
        server.close()
    assert any("wrong key ***" in note for note in caught.value.__notes__)


def test_keys_that_look_like_paths_or_users_are_masked() -> None:
    folders = os.pathsep.join([sys.prefix, "/no/such/folder"])
    keys = {"A": "/Ab3dEf6hIj9k", "B": "~Ab3dEf6hIj9k", "C": ".Ab3dEf6hIj9k"}
    target = Target(["python"], env={**keys, "PATH": folders})
    assert target.masked(f"{' '.join(keys.values())} {folders}") == f"*** *** *** {folders}"
    assert Target("https://token-52c17f3a@a.example/mcp").masked("no user token-52c17f3a") == "no user ***"
    assert Target("https://some-user:key-52c17f3a@a.example/").masked("some-user key-52c17f3a") == "some-user ***"


@pytest.mark.parametrize("source", [["/no/such/program"], "http://127.0.0.1:9/mcp"])
async def test_a_missing_server_is_an_error(source: Any) -> None:
    server = MCPToolset(source)
    try:
        with pytest.raises(MCPServerLost) as caught:
            await server.__aenter__()
        assert caught.value.limit is None
    finally:
        server.close()


def test_a_silent_server_is_stopped_at_the_time_limit_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    server = MCPToolset(raw_command("silent"), connect_timeout=0.5)
    with pytest.raises(MCPServerLost) as caught:
        list(server)
    assert caught.value.limit == 0.5
    server.close()

    own = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("agentkit-mcp")]
    until(lambda: not any(thread.is_alive() for thread in own))


async def test_invalid_lines_of_its_stdout_are_skipped_without_a_log(capfd: pytest.CaptureFixture[str]) -> None:
    async with MCPToolset(raw_command("garbage")) as server:
        assert (await ask(named(server, "fine"))).content == "ok"
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
@pytest.mark.parametrize("trouble", ["freeze", "torrent"])
async def test_a_server_that_hangs_or_floods_is_replaced_after_a_call_timed_out(trouble: str) -> None:
    async with MCPToolset(command("honest")) as server:
        pid = (await ask(named(server, "pid"))).content
        hung = await ask(named(server, trouble).with_changes(timeout=0.5))
        after = await ask(named(server, "pid"))  # waits for the new server, not for the old server

    assert hung.status == "timeout"
    assert after.ok and after.content != pid


async def test_an_interrupted_first_use_leaves_a_toolset_that_works() -> None:
    server = MCPToolset(command("honest"))
    opening = asyncio.create_task(server.__aenter__())
    await asyncio.sleep(0.05)
    opening.cancel()
    with suppress(asyncio.CancelledError):  # it may have opened before the interrupt
        await opening
    async with server:
        assert (await ask(named(server, "add"), a=1, b=2)).content == "3"
