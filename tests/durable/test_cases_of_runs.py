"""`agentkit runs show --as-case`: a durable run becomes a row that `agentkit eval --rows` reads unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from agentkit.agent_files import load_agent
from agentkit.cli.app import app
from agentkit.durable import RunFailed, Runs
from tests.waiting import LONG

DESK = """
from agentkit import Agent, ScriptedModel
from agentkit.memory import Memory


def reply(composition):
    text = composition.messages[-1].text
    if text == "fail":
        raise ConnectionError("no network")
    return f"Answer to {text}"


desk = Agent(ScriptedModel.repeat(reply), "x", name="desk", memory=Memory("memory"), recall=None)


def mask(text):
    return text.replace("Ada", "[name]")
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


async def test_a_run_of_a_session_is_a_row_of_an_evaluation(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "desk.py").write_text(DESK)
    agent: Any = load_agent("./desk.py:desk").agent
    runs = Runs(url)
    runs.add(agent)
    session = agent.memory.session("s")
    with runs.worker(poll=0.05, grace=0):
        for text in ("I am Ada", "Who am I, Ada?"):
            handle = await agent.start({"input": text, "additional_kwargs": {"of": "Ada"}}, session=session)
            assert (await handle.result(timeout=LONG)).output
        failed = await agent.start("fail")
        with pytest.raises(RunFailed):
            await failed.result(timeout=LONG)
    show = "runs", "show", handle.run_id, "--as-case", "--url", url
    options = "--agent", "./desk.py:desk", "--redact", "./desk.py:mask", "--tag", "names", "--tag", "b"
    done = run(*show, *options)
    assert done.exit_code == 0, done.stderr
    row = json.loads(done.stdout)
    assert row == {
        "input": "Who am I, [name]?",
        "id": handle.run_id,
        "expected": "Answer to Who am I, [name]?",
        "additional_kwargs": {"of": "[name]"},
        "history": [
            {"role": "user", "content": "I am [name]"},
            {"role": "assistant", "content": "Answer to I am [name]"},
        ],
        "tags": ["names", "b"],
    }
    without = run("runs", "show", failed.run_id, "--as-case", "--url", url)
    assert "nothing is redacted" in without.stderr and "the run is failed" in without.stderr
    assert json.loads(without.stdout) == {"input": "fail", "id": failed.run_id}
    (tmp_path / "cases.jsonl").write_text(done.stdout)
    score = run(
        "eval", "--agent", "./desk.py:desk", "--rows", "cases.jsonl", "--score", "exact", "--fail-under", "exact=1"
    )
    assert score.exit_code == 0, score
    for arguments, problem in (
        (show, "--agent"),
        ((*show, *options[:2], "--redact", "mask"), "MODULE:FUNCTION"),
        ((*show, *options[:2], "--redact", "./desk.py:DESK"), "DESK"),
        (("runs", "show", "none", "--as-case", "--url", url), "none"),
        (("runs", "show", handle.run_id, "--tag", "x", "--url", url), "--as-case"),
    ):
        refused = run(*arguments)
        assert refused.exit_code in (1, 2) and problem in refused.stderr, (arguments, refused)
