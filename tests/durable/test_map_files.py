"""The file of a map: no other data is lost by it, and one map writes it at a time."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Runs, ScriptedModel
from agentkit.durable import DurableError, RunIdTaken
from agentkit.durable.map_file import MapFile
from tests.effort import spread
from tests.raising import raises

Working = Callable[..., Runs]
FIRST = b'{"run_id": "m/0", "output": "ok", "finish_reason": "stop"}\n'


@pytest.fixture
def agent(runs: Runs) -> Agent[None]:
    made = Agent(ScriptedModel.repeat("ok"), name="answers")
    runs.add(made)
    return made


@pytest.mark.parametrize(
    ("kept", "line"),
    [
        (b"a letter of one line", 1),
        (b"a letter\n", 1),
        (b"\xff\xfe\n", 1),
        (b"\xff", 1),
        (b'"a question"', 1),
        (b'{"run_id": "m/1"', 1),
        (FIRST + b"more", 2),
        (FIRST + FIRST, 2),
        (FIRST + b'{"run_id": "m/1", "output": "ok"}\nmore', 3),
    ],
)
async def test_a_file_with_other_content_is_not_changed_and_no_run_starts(
    runs: Runs, agent: Agent[None], tmp_path: Path, kept: bytes, line: int
) -> None:
    out = tmp_path / "out"
    out.write_bytes(kept)
    with raises(DurableError, path=str(out), line=line):
        await agent.map(["a", "b"], name="m", out=out)
    assert out.read_bytes() == kept
    assert await runs.list_runs() == []


async def test_a_file_that_cannot_be_written_is_named_before_any_run_starts(
    runs: Runs, agent: Agent[None], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for out, value in {
        tmp_path: "Is a directory",
        tmp_path / "none" / "out": "No such file or directory",
        tmp_path / "pipe": "no file",
        Path("/dev/null"): "no file",
    }.items():
        with raises(DurableError, path=str(out), value=value):
            await agent.map(["a"], name="m", out=out)
    assert await runs.list_runs() == []


@pytest.mark.parametrize("cut", spread([b"", b'{"run', FIRST[:20], FIRST[:-1], b"\0" * 50, FIRST[:9] + b"\0" * 9], 2))
async def test_a_truncated_last_line_is_written_again(working: Working, tmp_path: Path, cut: bytes) -> None:
    agent = Agent(ScriptedModel.repeat("ok"), name="answers")
    working(agent)
    out = tmp_path / "out"
    out.write_bytes(cut)
    report = await agent.map(["a"], name="m", out=out)
    assert (out.read_bytes(), report.finished) == (FIRST, 1)


async def test_two_maps_do_not_write_one_file_at_the_same_time(working: Working, tmp_path: Path) -> None:
    agent = Agent(ScriptedModel.repeat("ok"), name="answers")
    working(agent)
    out = tmp_path / "out"
    asked = [agent.map(["a", "b"], name="m", out=out) for _ in range(2)]
    reports: list[Any] = await asyncio.gather(*asked, return_exceptions=True)
    refused = [one for one in reports if isinstance(one, DurableError)]
    assert len(refused) == 1 and "another map writes this file" in str(refused[0])
    assert len(out.read_text().splitlines()) == 2
    assert (await agent.map(["a", "b"], name="m", out=out)).finished == 2  # it has ended


async def test_a_map_with_a_changed_input_starts_no_run(working: Working, tmp_path: Path) -> None:
    agent = Agent(ScriptedModel.repeat("ok"), name="answers")
    runs = working(agent)
    out = tmp_path / "out"
    await agent.map(["a", "b"], name="m", out=out)
    with raises(RunIdTaken, run_id="m/1"):
        await agent.map(["a", "changed", "new"], name="m", out=out)
    assert {info.run_id for info in await runs.list_runs()} == {"m/0", "m/1"}
    assert (await agent.map(["a", "b", "new"], name="m", out=out)).total == 3
    with raises(DurableError, line=3):
        await agent.map(["a", "b"], name="m", out=out)


def test_answers_that_do_not_fit_on_a_full_disk_are_written_when_there_is_space(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    out, before = tmp_path / "out", resource.getrlimit(resource.RLIMIT_FSIZE)
    lines: list[Any] = [{"run_id": f"m/{number}", "output": "x" * 50} for number in range(3)]
    with MapFile(out, [line["run_id"] for line in lines]) as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            with raises(DurableError, path=str(out), value="File too large"):
                file.add(lines)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with MapFile(out, [line["run_id"] for line in lines]) as file:
        assert file.written == 1
        file.add(lines[1:])
        assert (file.written, file.failed) == (3, 0)
    assert [json.loads(line) for line in out.read_text().splitlines()] == lines
