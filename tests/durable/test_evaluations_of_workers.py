"""Workers execute the runs of an evaluation, which continues after a kill of a worker or of the evaluation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Runs, ScriptedModel, ToolContext, tool
from agentkit.errors import UnknownOption
from agentkit.evals import EvaluationError, evaluate, evaluate_sync, exact, read_report
from agentkit.runs.run_errors import DatabaseUnavailable
from tests import effort
from tests.durable.conftest import Working
from tests.raising import raises

CRASHES = Path(__file__).parents[2] / "benchmarks" / "evaluation_crashes.py"


async def test_workers_execute_the_rows_and_failed_runs_continue(runs: Runs, working: Working, tmp_path: Path) -> None:
    asked: list[str] = []
    is_broken = True

    def reply(composition: Any) -> Any:
        text = composition.messages[-1].text
        asked.append(text)
        if is_broken and text == "second":
            raise ConnectionError("no network")
        return text

    agent = Agent(ScriptedModel.repeat(reply), "x", name="clerk")
    working(agent, worker={"poll": 0.02})
    history = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "ok"}]
    rows: list[Any] = [{"input": text, "expected": text} for text in ("first", "second")]
    rows.append({"input": "third", "expected": "third", "history": history, "user": "ada"})
    out = tmp_path / "out.jsonl"
    report = await evaluate(agent, rows, [exact], out=out, database=runs, tenant="acme")
    assert report.values("exact") == {"1": [1], "2": [0], "3": [1]} and "RunFailed" in report.failures[0].error
    records = {record.input.text: record for record in await runs.list_runs() if record.input is not None}
    assert {record.tenant for record in records.values()} == {"acme"} and records["third"].user == "ada"
    assert {outcome.run_id for outcome in read_report(out).outcomes} == {run.run_id for run in records.values()}
    journals = tmp_path / "out.jsonl.runs"
    assert sorted(path.name for path in journals.iterdir()) == ["1-1.jsonl", "2-1.failed.jsonl", "3-1.jsonl"]
    is_broken = False
    report = await evaluate(agent, rows, [exact], out=out, database=runs, tenant="acme")
    assert report.reused == 2 and report.summary("exact").interval.mean == 1
    assert sorted(asked) == ["first", "second", "second", "third"]
    # The outcomes are lost, but the runs are not: no row is run again.
    head, salt = out.read_bytes().splitlines(keepends=True)[:2]
    out.write_bytes(head + salt)
    for journal in journals.iterdir():
        journal.unlink()
    report = await evaluate(agent, rows, [exact], out=out, database=runs, tenant="acme")
    assert report.reused == 0 and report.summary("exact").interval.mean == 1 and len(asked) == 4


@tool
def with_deps(context: ToolContext[Path]) -> str:
    """Return the deps."""
    return str(context.deps)


def test_a_database_needs_a_file_and_options_of_durable_runs(url: str, tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(["never"]), "x")
    row = [{"input": "x", "expected": "x"}]
    out = tmp_path / "out.jsonl"
    with raises(EvaluationError, name="out"):
        evaluate_sync(agent, row, [exact], database=url)
    with pytest.raises(UnknownOption):
        evaluate_sync(agent, row, [exact], database=url, out=out, approve={})
    with pytest.raises(DatabaseUnavailable):
        evaluate_sync(agent, row, [exact], database=f"sqlite:///{tmp_path}", out=out)


def test_after_a_kill_only_calls_in_flight_are_repeated() -> None:
    """The short form of `benchmarks/evaluation_crashes.py`, whose long form kills at least 500 processes."""
    command = [sys.executable, str(CRASHES), "--json", "--kills", str(effort.unless_fresh(2, 60))]
    counts = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    faults = ("lost", "wrong", "asked again", "acted again", "other key")
    assert counts["kills"] >= 2 and not any(counts[fault] for fault in faults), counts
