"""`agentkit export` writes rows of evaluations and of durable runs."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentkit.agent_files import load_agent
from agentkit.durable import Runs
from agentkit.evals import EvaluationWarning
from agentkit.ground.sync_driver import run_blocking
from agentkit.runs.run_record import RunRecord
from tests.cli.conftest import Run

ROWS = """
- {input: "When do owls hunt?", expected: night, tags: [owls], user: ada}
- {input: Hi, expected: bye, user: bob}
"""
AGENT = "name: owls\nmodel: offline\ninstructions: Be brief.\nmemory: {home: own}\n"


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_rows_of_an_evaluation_are_selected_and_forget_an_erased_user(run: Run, folder: Path) -> None:
    (folder / "agent.yaml").write_text(AGENT)
    (folder / "cases.yaml").write_text(ROWS)
    agent = ("--agent", "agent.yaml")
    assert run("ingest", "docs", *agent).exit_code == 0
    with pytest.warns(EvaluationWarning):
        done = run("eval", *agent, "--rows", "cases.yaml", "--score", "contains", "--out", "out.jsonl")
    assert done.exit_code == 0, done.stderr
    export = ("export", *agent, "--from", "out.jsonl")
    rows = lines_of(run(*export).stdout)
    assert [row["origin"]["row"] for row in rows] == ["1", "2"]
    chosen = run(
        *export, "--min", "contains=1", "--tag", "owls", "--format", "openai", "--output", "rows.jsonl", "--json"
    )
    assert json.loads(chosen.stdout) == {"lines": 1, "file": "rows.jsonl", "excluded": {"minimum contains=1": 1}}
    assert lines_of((folder / "rows.jsonl").read_text())[0]["messages"][-1]["weight"] == 1
    assert lines_of(run(*export, "--since", "2999-01-01").stdout) == []
    for wrong in (("--min", "contains"), ("--since", "soon"), ("--session", "s")):
        assert run(*export, *wrong).exit_code == 2
    none = run(*export, "--min", "contains=2", "--output", "none.jsonl")
    assert (none.exit_code, "2 excluded by --min contains=2" in none.stderr) == (0, True)
    mistyped = run(*export, "--min", "contans=1", "--output", "new.jsonl")
    assert mistyped.exit_code == 1 and "did you mean 'contains'" in mistyped.stderr
    assert not (folder / "new.jsonl").exists()
    assert run("memory", "erase", "--user", "ada", "--yes", "--home", "own").exit_code == 0
    after = run(*export)
    assert [row["origin"]["row"] for row in lines_of(after.stdout)] == ["2"]
    assert (after.exit_code, "it was erased" in after.stderr) == (0, True)
    (folder / "agent.yaml").write_text(AGENT.replace("Be brief.", "Be long."))
    changed = run(*export)
    assert (changed.exit_code, changed.stdout) == (1, "") and "prompts of the agent have changed" in changed.stderr
    assert len(lines_of(run(*export, "--present-prompts").stdout)) == 1
    # The name of another agent erases nothing.
    (folder / "agent.yaml").write_text(AGENT.replace("name: owls", "name: erased"))
    assert run("eval", *agent, "--rows", "cases.yaml", "--score", "contains", "--out", "other.jsonl").exit_code == 0
    (folder / "agent.yaml").write_text(AGENT)
    other = run("export", *agent, "--from", "other.jsonl")
    assert (other.exit_code, "'erased'" in other.stderr) == (1, True)


def test_rows_of_durable_runs(run: Run, folder: Path) -> None:
    (folder / "agent.yaml").write_text("name: owls\nmodel: offline\ninstructions: Be brief.\n")
    url = f"sqlite:///{folder / 'runs.db'}"
    assert run("export", "--agent", "agent.yaml", "--url", url).exit_code == 1
    agent = load_agent(folder / "agent.yaml").agent
    result, runs, now = agent.run_sync("Hi\u2028there"), Runs(url), time.time()
    runs.add(agent)
    run_blocking(agent.start("Later"))  # creates the database
    record = RunRecord(run_id=result.run_id, agent="owls", state="finished", created_at=now, updated_at=now)
    runs.store.rows.add(replace(record, user="ada"), result.journal.dumps())
    rows = lines_of(run("export", "--agent", "agent.yaml", "--url", url).stdout)
    assert [row["origin"]["run"] for row in rows] == [result.run_id]
    assert run("export", "--agent", "agent.yaml", "--url", url, "--user", "bob").stdout == ""
