"""`agentkit eval --agent`: rows of an agent file, scores, thresholds and reports."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agentkit.evals import EvaluationWarning
from tests.cli.conftest import Run
from tests.servers import ChatServer, chat_reply, in_turn

AGENT = "from agentkit import Agent, ScriptedModel\nclerk = Agent(ScriptedModel.repeat('yes'), 'x', name='clerk')\n"
MODULE = "def long(row, result):\n    return len(result.output) > 2\n"


@pytest.fixture
def rows(folder: Path) -> str:
    """Rows of an agent that always answers `yes`, in the working folder."""
    (folder / "clerk.py").write_text(AGENT + MODULE)
    (folder / "cases.yaml").write_text(
        "- {input: Is it open, expected: 'yes', tags: [hours]}\n- {input: Is it closed, expected: 'no'}\n"
    )
    return "--agent ./clerk.py:clerk --rows cases.yaml"


def test_scores_are_printed_and_thresholds_decide(run: Run, rows: str, folder: Path) -> None:
    scores = "--score exact --score ./clerk.py:long --score not_called:pay"
    with pytest.warns(EvaluationWarning):
        done = run("eval", *rows.split(), *scores.split(), "--fail-under", "long=0.9", "--repeats", "2")
    assert done.exit_code == 0, done
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][-2:] == ["pass@2", "pass^2"]
    assert [line[:3] for line in lines[1:]] == [
        ["exact", "2", "0.500"],
        ["exact", "(hours)", "1"],
        ["long", "2", "1.000"],
        ["long", "(hours)", "1"],
        ["not_called:pay", "2", "1.000"],
        ["not_called:pay", "(hours)", "1"],
    ]
    options = "--score exact --fail-under exact=0.9 --junit out.xml --markdown out.md --json --out out.jsonl"
    failed = run("eval", *rows.split(), *options.split())
    assert failed.exit_code == 1 and "exact is 0.500, below 0.9" in failed.stderr
    assert json.loads(failed.stdout)["scores"]["exact"]["mean"] == 0.5
    assert ElementTree.parse(folder / "out.xml").getroot()[0].get("failures") == "1"
    assert (folder / "out.md").read_text().startswith("| score |")
    again = run("eval", *rows.split(), "--score", "exact", "--out", "out.jsonl")
    assert again.exit_code == 0 and "2 of 2 outcomes are from out.jsonl" in again.stderr


def test_an_evaluation_without_a_successful_run_has_exit_code_1(run: Run, rows: str, folder: Path) -> None:
    with (folder / "clerk.py").open("a") as file:
        file.write("silent = Agent(ScriptedModel([]), 'x', name='silent')\n")
        file.write("late = Agent(ScriptedModel(['yes']), 'x', name='late')\n")
    command = f"{rows} --score exact --concurrency 1"
    silent = run("eval", *command.replace(":clerk", ":silent").split())
    assert silent.exit_code == 1 and "row 1: ScriptExhausted" in silent.stderr, silent
    late = run("eval", *command.replace(":clerk", ":late").split())
    assert late.exit_code == 0 and "row 2: ScriptExhausted" in late.stderr, late


def test_the_text_of_a_failed_score_is_printed_unchanged(run: Run, rows: str, folder: Path) -> None:
    with (folder / "clerk.py").open("a") as file:
        file.write("\ndef slow(row, result):\n    raise TimeoutError('timeout=5 money=3')\n")
    done = run("eval", *rows.split(), "--score", "./clerk.py:slow")
    assert done.exit_code == 1 and "TimeoutError: timeout=5 money=3" in done.stderr


def test_a_model_plays_the_user_of_rows_with_a_goal(
    run: Run, rows: str, folder: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    server.on(
        "person", in_turn(chat_reply('{"finished": false, "message": "Buy it."}'), chat_reply('{"finished": true}'))
    )
    (folder / "talks.yaml").write_text("- {input: Hi, script: [Open, Bye]}\n- {input: Hi, goal: Buy}\n")
    (folder / "scores.py").write_text("def turns(row, result):\n    return len(result.turns)\n")
    command = "--agent ./clerk.py:clerk --rows talks.yaml --score ./scores.py:turns --json"
    done = run("eval", *command.split(), "--user-model", "openai:person")
    assert done.exit_code == 0, done.stderr
    form = json.loads(done.stdout)
    assert [result["scores"]["turns"][0] for result in form["results"]] == [3, 2]
    assert form["overhead"]["input_tokens"] > 0


def test_a_judge_is_compared_with_labels_and_thresholds_decide(run: Run, folder: Path) -> None:
    (folder / "judges.py").write_text(
        "from agentkit import ScriptedModel\nfrom agentkit.evals import judge\n"
        "verdicts = [{'reason': 'so', 'passed': True}, {'reason': 'no', 'passed': False}]\n"
        "polite = judge(ScriptedModel.repeat(*verdicts), 'x')\n"
        "free = judge(ScriptedModel([]), 'x', levels=None)\n"
    )
    (folder / "labels.csv").write_text("input,answer,label\nHi,a,pass\nHi,b,fail\nHi,c,fail\nHi,d,fail\n")
    command = "--judge ./judges.py:polite --rows labels.csv --concurrency 1"
    done = run("eval", *command.split(), "--fail-under", "agreement=0.7")
    assert done.exit_code == 0 and "row 3: label fail, judge pass: so" in done.stdout, done
    failed = run("eval", *command.split(), "--fail-under", "kappa=0.9", "--json")
    assert failed.exit_code == 1 and "kappa is 0.500, below 0.9" in failed.stderr, failed
    assert json.loads(failed.stdout)["confusion"] == [[2, 1], [0, 1]]
    # Kappa of one level is NaN, which is not JSON.
    (folder / "level.csv").write_text("input,answer,label\nHi,a,pass\n")
    level = run("eval", *command.replace("labels", "level").split(), "--json")
    assert json.loads(level.stdout)["kappa"] == {"mean": None, "low": None, "high": None}
    (folder / "wrong.csv").write_text("input,answer,label\nHi,a,perhaps\n")
    for options, problem in (
        ("--judge ./judges.py:polite", "--rows"),
        (f"{command} --score exact", "--score"),
        (f"{command} --agent x.yaml", "--agent"),
        (f"{command} --repeats 2", "--repeats"),
        (f"config.py {command}", "not both"),
        (f"{command} --fail-under kapa=1", "did you mean 'kappa'"),
        ("--judge ./judges.py:free --rows labels.csv", "levels"),
        ("--judge ./judges.py:other --rows labels.csv", "other"),
        ("--judge ./judges.py:polite --rows wrong.csv", "row 1.label"),
    ):
        done = run("eval", *options.split())
        assert done.exit_code in (1, 2) and problem in done.stderr, (options, done)


def test_a_version_is_compared_with_an_earlier_version(run: Run, rows: str, folder: Path) -> None:
    evaluation = "eval", *rows.split(), "--score", "exact", "--score", "./clerk.py:long"
    assert run(*evaluation, "--out", "before.jsonl").exit_code == 0
    (folder / "clerk2.py").write_text((AGENT + MODULE).replace("'yes'", "'no'"))
    changed = "--agent", "./clerk2.py:clerk", "--before", "before.jsonl"
    done = run(*evaluation, *changed, "--fail-under", "exact=before", "--markdown", "out.md")
    assert done.exit_code == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["exact", "2", "0.500", "0.500", "+0.000", "-1.000", "to", "+1.000", "1", "1"] in lines
    assert ["long", "2", "1.000", "0.000", "-1.000", "-1.000", "to", "-1.000", "0", "2"] in lines
    assert ["1", "exact", "1", "0", "expected", "'yes',", "got", "'no'"] in lines
    assert "| long | 2 | 1.000 | 0.000 |" in (folder / "out.md").read_text()
    failed = run(*evaluation, *changed, "--fail-under", "long=before-0.5", "--json")
    assert failed.exit_code == 1 and "long is 0.000, below 0.5 (before-0.5)" in failed.stderr
    assert [each["worse"] for each in json.loads(failed.stdout)["differences"]] == [["1"], ["1", "2"]]
    assert len(json.loads(failed.stdout)["changes"]) == 4


def test_options_that_would_be_ignored_and_invalid_scores_are_refused(run: Run, rows: str, folder: Path) -> None:
    (folder / "wrong.yaml").write_text("- {inptu: x}\n")
    (folder / "wrong.csv").write_text("input,kwargs.\nx,y\n")
    for options, problem in (
        (f"{rows} --score exat", "did you mean 'exact'"),
        (f"{rows} --score max_steps:many", "max_steps:many"),
        (f"{rows} --score matches:(", "matches:("),
        (rows, "--score"),
        (f"{rows} --score exact --fail-under exact", "NAME=VALUE"),
        (f"{rows} --score exact --temperature 0", "--temperature"),
        (f"config.py {rows} --score exact", "not both"),
        ("cases.yaml --repeats 2", "--repeats"),
        ("", "CONFIG"),
        (f"{rows} --score exact --user-model offline", "row 1.goal"),
        (f"{rows} --score exact --user-model missing:x", "missing"),
        ("cases.yaml --user-model offline", "--user-model"),
        (f"{rows} --score exact --batch --out out.jsonl", "ScriptedModel has no batch API"),
        ("cases.yaml --batch", "--batch"),
        ("--agent ./clerk.py:clerk --rows wrong.yaml --score exact", "inptu"),
        ("--agent ./clerk.py:clerk --rows missing.yaml --score exact", "missing.yaml"),
        (f"{rows} --score exact --fail-under other=1", "unknown score 'other'"),
        (f"{rows} --score exact --fail-under exact=before", "--before"),
        (f"{rows} --score exact --before missing", "missing"),
        (f"{rows} --score exact --before cases.yaml", "not a file of an evaluation"),
        (f"{rows} --score exact --junit out.xml", "--fail-under"),
        (f"{rows} --score called:", "called:VALUE"),
        ("--agent ./clerk.py:clerk --rows wrong.csv --score exact", "kwargs."),
        (f"{rows} --score exact --markdown none/out.md", "existing folder"),
    ):
        done = run("eval", *options.split())
        assert done.exit_code in (1, 2) and problem in done.stderr, (options, done)
