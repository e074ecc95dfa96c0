"""`agentkit prompts`: versions of prompts in stored runs and in files of evaluations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentkit import Agent, ScriptedModel, tool
from agentkit.evals import evaluate_sync, exact, max_steps
from agentkit.prompts import Layers, TextPrompt
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_store import RunStore
from tests.cli.conftest import Run


@tool
def look(query: str) -> str:
    """Look."""
    return query


def desk(persona: str, description: str = "Look.", reply: str = "ok") -> Agent:
    layers = Layers([TextPrompt(persona, name="persona"), TextPrompt("Be brief.", name="rules")])
    tools = [look.with_changes(description=description)]
    return Agent(ScriptedModel.repeat(reply), layers=layers, tools=tools, name="desk")


def test_versions_are_listed_and_compared(run: Run, folder: Path) -> None:
    agents = [desk("You help."), desk("You help.\nAsk first."), desk("You help.\nAsk first.", "Look at all.")]
    store = RunStore(folder / "runs.db")
    for number, agent in enumerate(agents):
        store.versions.store(agent.definition.version)
        for state in ("finished", "failed"):
            journal = agent.run_sync("Hi", run_id=f"{number}-{state}").journal
            times = {"created_at": 1e9 + number, "updated_at": 1e9 + number}
            record = RunRecord(run_id=journal.run_id, agent="desk", state=state, tenant="local", **times)
            store.add(record, journal.dumps())
    # A run without a version, and a line that cannot be read.
    store.add(RunRecord(run_id="corrupt", agent="desk", state="failed", created_at=1.0, updated_at=1.0), "{\n")
    store.close()
    url = ("--url", "sqlite:///runs.db")
    listed = run("prompts", "log", *url, "--json")
    assert listed.exit_code == 0, listed
    uses = [json.loads(line) for line in listed.stdout.splitlines()]
    versions = [agent.definition.version.id for agent in agents]
    assert [use["version"] for use in uses] == versions and {use["runs"] for use in uses} == {2}
    assert {use["failed"] for use in uses} == {1}
    shown = run("prompts", "log", *url, "--agent", "desk").stdout
    changes = [line.split()[-1] for line in shown.splitlines()[1:]]
    assert changes == ["version", "system.persona", "tools.look"], shown
    assert not run("prompts", "log", *url, "--tenant", "other", "--json").stdout
    compared = run("prompts", "diff", versions[0], versions[2][:6], *url)
    pairs = json.loads(run("prompts", "diff", versions[0], versions[2][:6], *url, "--json").stdout)
    assert pairs and all(f"/{name}" in compared.stdout and old != new for name, (old, new) in pairs.items())
    assert compared.exit_code == 0, compared
    assert "+Ask first." in compared.stdout and '+ "description": "Look at all.",' in compared.stdout
    assert "Be brief." not in compared.stdout
    assert run("prompts", "diff", versions[0], versions[0], *url).stdout.startswith("the prompts")
    for name in ("nothing", ""):
        refused = run("prompts", "diff", name, versions[0], *url)
        assert refused.exit_code == 2 and versions[1] in refused.stderr, refused


def test_scores_are_listed_by_version(run: Run, folder: Path) -> None:
    rows = [{"input": "a", "expected": "ok"}, {"input": "b", "expected": "no"}]
    agents = {"before.jsonl": desk("You help."), "after.jsonl": desk("You help well.", reply="no")}
    for name, agent in agents.items():
        evaluate_sync(agent, rows, [exact, max_steps(2)], out=folder / name)
    shown = run("prompts", "scores", *agents)
    assert shown.exit_code == 0, shown
    cells = [line.split()[:5] for line in shown.stdout.splitlines()[1:]]
    versions = [agent.definition.version.id for agent in agents.values()]
    assert cells == [
        ["desk", version, name, score, "2"]
        for version, name in zip(versions, agents, strict=True)
        for score in ("exact", "max_steps:2")
    ]
    evaluate_sync(Agent(ScriptedModel(["ok"]), "x"), rows, [exact], out=folder / "failed.jsonl", concurrency=1)
    failed = run("prompts", "scores", "failed.jsonl")
    assert failed.stdout.splitlines()[1].split()[4:6] == ["2", "1"], failed
    assert json.loads(run("prompts", "scores", "failed.jsonl", "--json").stdout)[0]["failed"] == 1
    data = json.loads(run("prompts", "scores", "after.jsonl", "--json").stdout)
    assert data[0]["version"] == versions[1] and data[0]["scores"]["exact"]["mean"] == 0.5
    assert run("prompts", "scores", "missing.jsonl").exit_code == 1


def test_an_invalid_variant_is_refused_before_the_server_starts(run: Run, folder: Path) -> None:
    pytest.importorskip("starlette")
    (folder / "desk.yaml").write_text("model: offline\n", "utf-8")
    (folder / "disk.yaml").write_text("model: offline\n", "utf-8")
    for option in ("desk.yaml", "desk.yaml=much", "=0.5", "desk.yaml=1.5", "disk.yaml=0.5", "missing.yaml=0.5"):
        refused = run("serve", "--agent", "desk.yaml", "--variant", option, "--port", "0")
        assert refused.exit_code in (1, 2) and refused.stderr, (option, refused)


def test_a_mistyped_address_creates_no_database(run: Run, folder: Path) -> None:
    for command in (("log",), ("diff", "a", "b")):
        done = run("prompts", *command, "--url", "sqlite:///none.db")
        assert done.exit_code == 1 and "none.db has no runs" in done.stderr, done
    assert not (folder / "none.db").exists()
