"""One run for each of many inputs: in order, resumable, with limits."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkit import Agent, Composition, Message, Reply, Runs, ScriptedModel
from agentkit.cli.app import app
from agentkit.durable import DurableError, RunIdTaken
from agentkit.errors import UnknownOption
from tests.raising import raises

Working = Callable[..., Runs]


class Counting(ScriptedModel):
    """Answers with its input, and counts its simultaneous requests."""

    def __init__(self) -> None:
        super().__init__(["unused"])
        self.now = self.most = 0
        self.asked: list[str] = []

    async def request(self, composition: Composition, **_: Any) -> Reply:
        self.asked.append(composition.user.text)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.02)
        self.now -= 1
        if composition.user.text == "3":
            raise ValueError("three is too much")
        return Reply(Message("assistant", f"to {composition.user.text}"))


async def test_answers_and_errors_are_written_in_order_and_a_second_map_repeats_no_run(
    working: Working, tmp_path: Path
) -> None:
    model, out, seen = Counting(), tmp_path / "out.jsonl", list[tuple[int, int]]()
    agent = Agent(model, "You answer.", name="mapper")
    working(agent, worker={"poll": 0.1})
    inputs = [str(number) for number in range(12)]
    report = await agent.map(
        inputs, name="numbers", out=out, concurrency=3, on_progress=lambda done, total: seen.append((done, total))
    )
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["run_id"] for line in lines] == [f"numbers/{number}" for number in range(12)]
    assert [line.get("output") for line in lines[:3]] == ["to 0", "to 1", "to 2"]
    assert lines[3]["error"] == {"kind": "ValueError", "message": "three is too much"}
    assert (report.total, report.finished, report.failed, model.most <= 3) == (12, 11, 1, True)
    assert seen[-1] == (12, 12)
    text = out.read_bytes()
    out.write_bytes(text[: len(text) // 2])  # as after a crash in the middle of a line
    again = await agent.map(inputs, name="numbers", out=out)
    assert (out.read_bytes(), again) == (text, report)
    assert len(model.asked) == 12
    with raises(DurableError, line=1):
        await agent.map(["a"], name="others", out=out)
    with raises(RunIdTaken, run_id="numbers/0"):
        await agent.map(["a"], name="numbers", out=tmp_path / "new.jsonl")


@pytest.mark.long
async def test_a_rate_and_a_limit_for_each_tenant_are_respected(working: Working, tmp_path: Path) -> None:
    model = Counting()
    agent = Agent(model, "You answer.", name="mapper")
    runs = working(agent)
    inputs = [f"{tenant}{number}" for number in range(4) for tenant in "ab"]
    await agent.map(inputs, name="tenants", out=tmp_path / "t", tenant=lambda text: text[0], tenant_concurrency=1)
    assert model.most <= 2
    await agent.map([f"r{number}" for number in range(3)], name="rate", out=tmp_path / "r", rate=1.5)
    ids = [f"rate/{number}" for number in range(3)]
    begun = sorted(one.dequeued_at for one in runs.store.client.list_workflows(workflow_ids=ids))
    assert all(later - before >= 666 for before, later in pairwise(begun)), begun  # by the clock that starts them


def test_the_command_line_maps_a_file_and_names_its_invalid_lines(url: str, tmp_path: Path) -> None:
    module, inputs, out = tmp_path / "mapped.py", tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    module.write_text(
        "from agentkit import Agent, Runs, ScriptedModel\n"
        f"runs = Runs({url!r})\n"
        "runs.add(Agent(ScriptedModel.repeat(lambda sent: 'to ' + sent.user.text), name='mapper'))\n"
    )
    words = ["runs", "map", str(module), str(inputs), "--name", "m", "--out", str(out), "--work", "--json"]
    inputs.write_text('"a"\n\n{"input": 3}\nnope\n{"input": "b", "tenant": "t"}\n')
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 1 and "nothing was started" in refused.stderr and not out.exists()
    assert all(part in refused.stderr for part in ("line 3: expected a text", "line 4: ", "line 5: 'tenant': would be"))
    inputs.write_text('"a"\n{"input": "b"}\n')
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"total": 2, "finished": 2, "failed": 0, "path": str(out)}
    assert [json.loads(line)["output"] for line in out.read_text().splitlines()] == ["to a", "to b"]


async def test_invalid_inputs_are_named_before_any_run_starts(runs: Runs, tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(["x"]), name="mapper")
    runs.add(agent)
    with raises(DurableError, name="inputs[1], inputs[3]"):
        await agent.map(["a", 1.5, "b", 2.5], name="m", out=tmp_path / "out")  # type: ignore[list-item]
    with raises(DurableError, name="concurrency, rate, inputs"):
        await agent.map("abc", name="m", out=tmp_path / "out", concurrency=0, rate=-1)
    with raises(DurableError, name="concurrency, rate"):
        await agent.map(["a"], name="m", out=tmp_path / "out", concurrency=1_000_001, rate=float("inf"))
    with raises(UnknownOption, name="limit", meant={"limit": None}):
        await agent.map(["a"], name="m", out=tmp_path / "out", limit=3)  # type: ignore[call-arg]
    assert await runs.list_runs() == []
    assert not (tmp_path / "out").exists()
