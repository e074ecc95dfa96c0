"""An MCP server that breaks the protocol costs its time limit, and ends with the process that started it."""

from __future__ import annotations

import codecs
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import ToolCall
from agentkit.tools import MCPServerError, MCPServerLost, MCPToolset, ToolContext, ToolDefinitionError, ToolResult
from agentkit_prompts.limits import MAX_INPUT_BYTES, MAX_NAME_CHARS
from agentkit_tools.mcp import bounded_lines
from tests.paths import ROOT
from tests.tools.mcp.mcp_running import RAW as PEER
from tests.tools.mcp.mcp_running import ends, is_alive

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def raw() -> Iterator[MCPToolset]:
    with MCPToolset([sys.executable, str(PEER), "plain"]) as server:
        yield server


async def ask(server: MCPToolset, name: str, *, timeout: float = 60, **arguments: object) -> ToolResult:
    made = next(one for one in server if one.original_name == name).with_changes(timeout=timeout)
    return await made.call(ToolCall("call_1", made.name, json.dumps(arguments)), ToolContext(None, "run_1", "call_1"))


def test_a_server_that_never_lists_its_tools_is_stopped() -> None:
    server = MCPToolset([sys.executable, str(PEER), "no_list"], connect_timeout=2)
    try:
        with pytest.raises(MCPServerLost) as caught:
            list(server)
        assert caught.value.limit == 2
    finally:
        server.close()


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("exponential", "success"),
        ("catastrophic", "error"),
        ("listed", "success"),
        ("endless", "success"),
        ("product", "success"),
    ],
)
async def test_the_check_of_an_output_schema_ends_at_its_time_limit(raw: MCPToolset, name: str, status: str) -> None:
    assert (await ask(raw, name)).status == status
    assert (await ask(raw, "fine")).content == "ok"


@pytest.mark.parametrize("name", ["unparsable", "batch", "deep", "huge", "mute", "bomb"])
async def test_an_invalid_line_costs_the_time_limit_of_its_call(raw: MCPToolset, name: str) -> None:
    result = await ask(raw, name, timeout=2, **({"x": "text"} if name == "bomb" else {}))

    assert result.status in ("timeout", "error")
    assert (await ask(raw, "fine")).content == "ok"


@pytest.mark.parametrize("name", ["asks", "deaf"])
async def test_a_server_that_stops_reading_is_replaced_before_the_next_call_ends(name: str) -> None:
    with MCPToolset([sys.executable, str(PEER), "plain"]) as server:
        result = await ask(server, name, timeout=1, x="y" * 1_000_000)

        assert result.status == "timeout"
        assert (await ask(server, "fine")).content == "ok"


async def test_content_of_an_unknown_or_missing_type_does_not_fail_a_call(raw: MCPToolset) -> None:
    assert (await ask(raw, "future")).content == 'ok\n[unknown content: {"type": "map", "pins": [1]}]'
    assert (await ask(raw, "contentless")).content == '{"n": 1}'


@pytest.mark.parametrize("name", ["half", "bytes"])
async def test_a_text_that_was_cut_inside_a_character_is_read(raw: MCPToolset, name: str) -> None:
    assert (await ask(raw, name)).content == "cut \ufffd"


@given(st.lists(st.sampled_from([r"\ud83d", r"\uD83D", r"\ude00", r"\uDE00", "x", "\\\\", r"\n", r"\u0041", "ud83d"])))
def test_halves_of_surrogate_pairs_are_replaced_and_nothing_else(pieces: list[str]) -> None:
    line = f'"{"".join(pieces)}"'
    read = codecs.getincrementaldecoder(bounded_lines.bounded("utf-8"))().decode(line.encode() + b"\n")
    expected = re.sub("[\ud800-\udfff]", "\ufffd", json.loads(line))
    assert json.loads(read) == expected


async def test_an_endless_line_is_an_error_long_before_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_lines, "MAX_INPUT_BYTES", 3_000_000)
    with MCPToolset([sys.executable, str(PEER), "plain"], timeout=60, retries=0) as server:
        result = await ask(server, "without_end")

        assert type(result.error) is MCPServerError
        assert "MCP server python" in str(result.content)
        assert "wrote a line of more than" in str(result.content)
        assert (await ask(server, "fine")).content == "ok"


def test_a_server_that_starts_with_an_endless_line_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_lines, "MAX_INPUT_BYTES", 3_000_000)
    server = MCPToolset([sys.executable, str(PEER), "flood"], connect_timeout=60)
    try:
        with pytest.raises(MCPServerError) as caught:
            list(server)
        assert (type(caught.value), caught.value.limit) == (MCPServerError, MAX_INPUT_BYTES)
    finally:
        server.close()


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16-le"])
@pytest.mark.parametrize("step", [1, 3, 7, 1_000])
def test_lines_up_to_the_limit_are_read_unchanged(monkeypatch: pytest.MonkeyPatch, encoding: str, step: int) -> None:
    monkeypatch.setattr(bounded_lines, "MAX_INPUT_BYTES", 20)
    text = "one\n\ntwo é three\n" + "x" * 20 + "\nlast\n"
    data = text.encode(encoding)
    decoder = codecs.getincrementaldecoder(bounded_lines.bounded(encoding))("strict")
    pieces = [decoder.decode(data[start : start + step]) for start in range(0, len(data), step)]
    assert "".join(pieces) == text
    assert text.encode(bounded_lines.bounded(encoding)) == data
    assert all(piece == "" or piece.endswith("\n") for piece in pieces)


@pytest.mark.parametrize("step", [1, 3, 7])
def test_no_part_of_a_line_above_the_limit_is_stored(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(bounded_lines, "MAX_INPUT_BYTES", 20)
    data = b"one\n" + b"x" * 100 + b"\ntwo\n" + b"y" * 100
    decoder = codecs.getincrementaldecoder(bounded_lines.bounded("utf-8"))()
    lines = "".join(decoder.decode(data[start : start + step]) for start in range(0, len(data), step)).split("\n")
    assert [line if len(line) < 9 else json.loads(line)["method"] for line in lines] == [
        "one",
        bounded_lines.TOO_LONG,
        "two",
        bounded_lines.TOO_LONG,
        "",
    ]


def test_bytes_that_are_not_text_are_an_error_as_in_any_encoding() -> None:
    with pytest.raises(UnicodeDecodeError):
        codecs.getincrementaldecoder(bounded_lines.bounded("utf-8"))("strict").decode(b"\xff\n")
    with pytest.raises(LookupError):
        bounded_lines.bounded("no such encoding")


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ignores_everything_ends_with_its_parent_process(how: int) -> None:
    peer = [sys.executable, str(PEER), "stubborn"]
    code = (
        "import sys, time\nfrom agentkit.tools import MCPToolset\n"
        f"server = MCPToolset({peer!r})\nprint(next(iter(server)).description, flush=True)\n"
        "time.sleep(600)"
    )
    ours = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert ours.stdout is not None
    server = int(ours.stdout.readline())
    assert is_alive(server)
    os.kill(ours.pid, how)
    ours.wait()
    assert ends(server)


def test_a_malformed_tool_is_skipped_and_reported_and_the_other_tools_are_offered() -> None:
    with MCPToolset([sys.executable, str(PEER), "malformed"]) as server:
        assert [tool.name for tool in server] == ["first", "last"]
        problems = [problem for problem in server.problems if isinstance(problem, ToolDefinitionError)]
    *names, long = [problem.tool for problem in problems]
    assert names == ["none", "listed", "text", "odd", "", ""]
    assert long == f"{'n' * MAX_NAME_CHARS}... (1,999,936 more characters)"
    assert max(len(str(problem)) for problem in problems) < 1_000


@pytest.mark.parametrize(
    ("mode", "limit"), [("crowded", MAX_INPUT_BYTES), ("many", MAX_INPUT_BYTES), ("many_short", 20_000)]
)
def test_a_list_of_too_many_tools_is_refused_within_the_time_limit(mode: str, limit: int) -> None:
    server = MCPToolset([sys.executable, str(PEER), mode], connect_timeout=4)
    with pytest.raises(MCPServerError) as caught:
        list(server)
    assert caught.value.limit in (limit, 4)  # on a slow machine the time limit comes first
    server.close()


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("mode", ["no_list", "hung"])
def test_a_hung_server_has_ended_after_its_toolset_is_closed(mode: str, tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    noted.touch()
    command = ["sh", "-c", f'echo $$ >> {noted}; exec "$@"', "sh", sys.executable, str(PEER), mode]
    server = MCPToolset(command, connect_timeout=2)
    for _ in range(2):  # the second call meets the server during its replacement
        with pytest.raises(MCPServerLost) as caught:
            list(server)
        assert caught.value.limit == 2
    server.close()
    assert all(ends(pid) for pid in map(int, noted.read_text().split()))
