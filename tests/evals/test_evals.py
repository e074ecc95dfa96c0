"""Agents are run on rows, scored, and reported; an interrupted evaluation continues."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from agentkit import Agent, Message, ModelError, OpenAIModel, ScriptedModel, Summarise, ToolCall, ToolContext, tool
from agentkit.errors import DepsMismatch, UnknownOption
from agentkit.evals import (
    EvalRow,
    EvaluationError,
    EvaluationReport,
    EvaluationStopped,
    EvaluationWarning,
    RowsError,
    Score,
    ScoresFailed,
    called,
    choice,
    cites,
    contains,
    evaluate,
    evaluate_sync,
    exact,
    json_equal,
    matches,
    max_money,
    max_steps,
    max_tokens,
    mean_interval,
    no_tool_errors,
    not_called,
    numeric,
    pass_all,
    pass_at,
    read_report,
    recalled,
)
from agentkit.models import Price, Reply, Usage
from agentkit.prompts import AdditionalInfoPrompt, Layers, PromptContext, Template
from agentkit.sandbox import ProcessSandbox, code_mode
from agentkit.tools import DynamicToolset
from tests.raising import raises

OF_SHOP = Layers(AdditionalInfoPrompt(Template("You work for {{ shop }}.")))
ROWS: list[dict[str, Any]] = [
    {"input": "1+1", "expected": "2", "tags": ["sum"]},
    {"input": "2*3", "expected": "6", "tags": ["product"], "id": "six"},
    {"input": "fail", "expected": "?"},
]


def answer(composition: Any) -> Any:
    text = composition.messages[-1].text
    if text == "fail":
        raise ConnectionError("no network")
    return {"1+1": "2", "2*3": "5"}[text]


def calculator(**options: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel.repeat(answer), "You calculate.", name="calculator", **options)


def test_each_row_is_run_and_scored_and_a_failed_run_has_the_score_0() -> None:
    def short(row: EvalRow, result: Any) -> bool:
        return len(result.output) < 3

    async def later(row: EvalRow, result: Any) -> Score:
        return Score(0.5, "half")

    report = evaluate_sync(calculator(), ROWS, [exact, short, later], repeats=2, concurrency=3)
    assert [(each.row.id, each.repeat) for each in report.outcomes] == [
        (row, repeat) for row in ("1", "six", "3") for repeat in (0, 1)
    ]
    assert report.values("exact") == {"1": [1, 1], "six": [0, 0], "3": [0, 0]}
    assert report.values("short", "sum") == {"1": [1, 1]}
    assert report.summary("later").interval.mean == pytest.approx(1 / 3)
    (failed, _) = report.failures
    assert failed.error == "ConnectionError: no network" and failed.scores["later"].value == 0
    assert report.outcomes[2].scores["exact"].reason == "expected '6', got '5'"
    assert report.score_names == ["exact", "short", "later"] and report.tags == ["product", "sum"]
    # asyncio writes the result of a task into messages: a report of 10,000 rows must not become a text there.
    assert repr(report) == "EvaluationReport(agent='calculator', 6 outcomes)"


SCORED: list[tuple[Any, Any, Any, float]] = [
    (exact, "Paris", " Paris\n", 1),
    (exact, ["Paris", "paris"], "paris", 1),
    (exact, "Paris", "It is Paris.", 0),
    (numeric, "1,000", "about 1e3", 1),
    (numeric, 7, "8", 0),
    (choice, "B", "The answer is (B).", 1),
    (contains, ["red", "Blue"], "A RED car.", 0.5),
    (contains, "red", "A red car.", 1),
    (json_equal, {"a": 1, "b": [True]}, '{"b": [true], "a": 1.0}', 1),
    (json_equal, {"a": 1}, '{"a": true}', 0),
    (json_equal, {"a": 1}, "no JSON", 0),
    (json_equal, '{"a": 1}', '{"a": 1}', 1),
    (matches(r"^\d+ items$"), None, "12 items", 1),
    (matches(r"^\d+ items$"), None, "no items", 0),
    (max_steps(1), None, "x", 1),
    (max_tokens(30), None, "x", 1),
    (max_tokens(29), None, "x", 0),
    (max_money(0.0001), None, "x", 1),
    (max_money(0.00001), None, "x", 0),
    (no_tool_errors, None, "x", 1),
    (not_called("pay"), None, "x", 1),
    (called("pay"), None, "x", 0),
    (cites, None, "x", 0),
    (cites, None, "It costs 5 [a.md#1].", 0),
    (recalled("a.md"), None, "x", 0),
]


def test_scores_of_answers() -> None:
    for score, expected, text, value in SCORED:
        reply = Reply(Message("assistant", text), usage=Usage(20, 10))
        agent = Agent(ScriptedModel([reply], price=Price(input=1, output=4)), "x")
        report = evaluate_sync(agent, [{"input": "Hi", "expected": expected}], [score])
        (outcome,) = report.outcomes
        (result,) = outcome.scores.values()
        assert result.value == value, (report.score_names, expected, text, result)


@tool
def with_deps(context: ToolContext[Path]) -> str:
    """Return the deps."""
    return str(context.deps)


@tool
def whoami(context: ToolContext) -> str:
    """Return the user."""
    return context.user


def calls(*queries: str) -> list[Any]:
    return [ToolCall(name="search", arguments={"query": query, "limit": 3}) for query in queries]


def test_scores_of_trajectories() -> None:
    @tool
    def search(query: str, limit: int) -> str:
        """Search."""
        if query == "broken":
            raise OSError("the disk is full")
        return "found"

    cases: list[tuple[Any, list[Any], float]] = [
        (called("search"), [calls("a")[0], "ok"], 1),
        (called("search", times=2), [calls("a", "b"), "ok"], 1),
        (called("search", times=1), [calls("a", "b"), "ok"], 0),
        (called("search", order=2, arguments={"query": "b"}), [calls("a")[0], calls("b")[0], "ok"], 1),
        (called("search", order=1, arguments={"query": "b"}), [calls("a")[0], calls("b")[0], "ok"], 0),
        (called("search", arguments={"limit": 3.0}), [calls("a")[0], "ok"], 1),
        (called("search", arguments={"limit": 4}), [calls("a")[0], "ok"], 0),
        (not_called("search"), [calls("a")[0], "ok"], 0),
        (no_tool_errors, [calls("a")[0], "ok"], 1),
        (no_tool_errors, [calls("a", "broken"), "ok"], 0),
        (max_steps(1), [calls("a")[0], "ok"], 0),
    ]
    for score, replies, value in cases:
        report = evaluate_sync(Agent(ScriptedModel(replies), "x", tools=[search]), [{"input": "Hi"}], [score])
        (result,) = report.outcomes[0].scores.values()
        assert result.value == value, (score.__name__, replies, result)


def test_a_score_that_can_have_only_one_value_is_a_warning() -> None:
    @tool
    def transfer(number: int) -> str:
        """Transfer money."""
        return "done"

    async def created(context: PromptContext) -> list[Any]:
        return [transfer]

    class NoDocuments:
        def recall(self, query: str) -> tuple[()]:
            return ()

    cases: list[tuple[Any, dict[str, Any], bool]] = [
        (called("transfer", arguments={"number": 1}), {}, False),
        (not_called("tranfser"), {}, True),
        (called("tranfser"), {}, True),
        (called("transfer", arguments={"nmber": 1}), {}, True),
        (not_called("tranfser"), {"tools": [DynamicToolset(created)]}, False),
        (called("transfer"), {"tools": [code_mode([transfer], sandbox=ProcessSandbox())]}, False),
        (not_called("tranfser"), {"tools": [code_mode([transfer], sandbox=ProcessSandbox())]}, True),
        (recalled("a.md"), {}, True),
        (recalled("a.md"), {"memory": NoDocuments()}, False),
        (exact, {}, False),
        (exact, {"model": "offline"}, True),
    ]
    for score, options, is_doubtful in cases:
        agent = Agent(**{"model": ScriptedModel.repeat("ok"), "instructions": "x", "tools": [transfer], **options})
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            evaluate_sync(agent, [{"input": "Hi", "expected": "ok"}], [score])
        doubts = [each for each in issued if each.category is EvaluationWarning]
        assert len(doubts) == is_doubtful, (score.__name__, options, doubts)


def test_a_missing_sdk_ends_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with raises(ModelError, name="openai"):
        evaluate_sync(Agent(OpenAIModel("m", api_key="k"), "x"), [{"input": "Hi"}, {"input": "Ho"}], [max_steps(1)])


def test_rows_are_read_from_files_and_reach_the_run(tmp_path: Path) -> None:
    history = [{"role": "user", "content": "I am Ada."}, {"role": "assistant", "content": "Hello."}]
    entry = {"input": "Who?", "additional_kwargs": {"shop": "z"}, "history": history, "user": "ada", "tags": ["a", "b"]}
    files = {
        "rows.jsonl": json.dumps(entry),
        "rows.json": json.dumps([entry]),
        "rows.yaml": json.dumps([entry]),
        "rows.csv": "input,kwargs.shop,user,tags,id\nWho?,z,ada,a b,\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        model = ScriptedModel([ToolCall(name="whoami", arguments={}), "ok"])
        agent = Agent(model, layers=OF_SHOP, tools=[whoami])
        report = evaluate_sync(agent, tmp_path / name, [max_steps(2)])
        assert report.outcomes[0].row.tags == ("a", "b"), name
        texts = [message.text for message in model.requests[-1].messages]
        assert "You work for z." in texts[0] and texts[-1] == "ada", name
        assert ("I am Ada." in texts) == (name != "rows.csv")


def test_all_problems_of_rows_are_reported_before_any_request(tmp_path: Path) -> None:
    model = ScriptedModel(["never"])
    agent = Agent(model, layers=OF_SHOP)
    rows: list[Any] = [
        {"input": "x", "additional_kwargs": {"shop": "z"}, "id": "a"},
        {"input": "x", "additional_kwargs": {"shop": "z"}, "id": "a"},
        {"input": "x"},
        {"inptu": "x", "input": "x", "additional_kwargs": {"shop": "z"}},
        {"additional_kwargs": {"shop": "z"}},
        "text",
        {"input": "x", "additional_kwargs": {"shop": "z"}, "history": [{"role": "cook", "content": "x"}]},
    ]
    with pytest.raises(RowsError) as caught:
        evaluate_sync(agent, rows, [exact])
    assert [place for place, _ in caught.value.problems] == [
        "row 2.id",
        "row 3.additional_kwargs.shop",
        "row 4.inptu",
        "row 5.input",
        "row 6",
        "row 7.history",
    ]
    wrong: dict[str, Any] = {"user": True, "tags": 3, "additional_kwargs": [], "script": [1], "input": 4}
    with pytest.raises(RowsError) as caught:
        evaluate_sync(agent, [wrong], [exact])
    assert dict(caught.value.problems) == {
        "row 1.input": "expected text, or a list of content parts, got 4",
        "row 1.user": "expected text, got True",
        "row 1.additional_kwargs": "expected a mapping, got list",
        "row 1.script[0]": "expected text, got 1",
        "row 1.tags": "expected a list, got 3",
    }
    (tmp_path / "broken.yaml").write_text("- [")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "map.yaml").write_text("input: x")
    (tmp_path / "twice.yaml").write_text("- {input: pay 3, input: pay 900}")
    # Thirty such lines describe a billion values.
    (tmp_path / "shared.yaml").write_text("- {input: x, expected: {a: &a [1, 2], b: [*a, *a]}}")
    (tmp_path / "endless.yaml").write_text("- {input: x, expected: &a [*a]}")
    (tmp_path / "deep.yaml").write_text("- {input: x, expected: " + "[" * 900 + "]" * 900 + "}")
    names = ("broken.yaml", "empty.jsonl", "map.yaml", "missing.csv", "rows.txt", "twice.yaml", "shared.yaml")
    for name in (*names, "endless.yaml", "deep.yaml"):
        with pytest.raises(RowsError):
            print(name, evaluate_sync(agent, tmp_path / name, [exact]))
    assert not model.requests


def test_words_and_dates_in_yaml_rows_are_text(tmp_path: Path) -> None:
    rows = ("- {input: Is it open, expected: no}", "- {input: Which day, expected: 2026-11-28}")
    (tmp_path / "rows.yaml").write_text("\n".join(rows))
    agent = Agent(ScriptedModel(["no", "2026-11-28"]), "x")
    report = evaluate_sync(agent, tmp_path / "rows.yaml", [exact], concurrency=1)
    assert [outcome.scores["exact"].value for outcome in report.outcomes] == [1, 1]


def test_invalid_arguments_are_refused_before_any_request() -> None:
    agent: Any = Agent(ScriptedModel(["never"]), "x")
    row = [{"input": "x"}]
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("scores", lambda: evaluate_sync(agent, row, [])),
        ("scores", lambda: evaluate_sync(agent, row, [exact, exact])),
        ("scores", lambda: evaluate_sync(agent, row, ["exact"])),  # type: ignore[list-item]
        ("repeats", lambda: evaluate_sync(agent, row, [exact], repeats=0)),
        ("concurrency", lambda: evaluate_sync(agent, row, [exact], concurrency=True)),
        ("money", lambda: evaluate_sync(agent, row, [exact], money=-1)),
        ("rate", lambda: evaluate_sync(agent, row, [exact], rate=0)),
        ("rows", lambda: evaluate_sync(agent, [], [exact])),
    ]
    for name, call in calls:
        with raises(EvaluationError, name=name):
            print(call())
    for options in ({"seed": 3}, {"session": None}, {"journal": "x"}):
        with pytest.raises(UnknownOption):
            print(options, evaluate_sync(agent, row, [exact], **options))
    broken = Agent(ScriptedModel(["never"]), "x", tools=[with_deps])
    with pytest.raises(DepsMismatch):
        evaluate_sync(broken, row * 3, [exact])


def test_a_score_that_fails_names_its_row_and_the_other_rows_are_scored() -> None:
    def wrong(row: EvalRow, result: Any) -> Any:
        return {"1": math.nan, "2": "good", "3": None, "4": True}[row.id]

    def raising(row: EvalRow, result: Any) -> Any:
        return 1 / (4 - int(row.id))

    rows = [{"input": "x"}] * 4
    with pytest.raises(ScoresFailed) as caught:
        evaluate_sync(Agent(ScriptedModel.repeat("ok"), "x"), rows, [wrong, raising])
    report: EvaluationReport = caught.value.report
    assert [(problem.row, problem.score) for problem in report.problems] == [
        ("1", "wrong"),
        ("2", "wrong"),
        ("3", "wrong"),
        ("4", "raising"),
    ]
    assert report.values("wrong") == {"4": [1]} and list(report.values("raising")) == ["1", "2", "3"]


def test_an_interrupted_evaluation_continues_without_repeated_calls(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    asked: list[str] = []
    keys: list[str] = []

    @tool
    def act(context: ToolContext) -> str:
        """Act."""
        keys.append(context.idempotency_key)
        return "done"

    class Killed(BaseException):
        pass

    def reply(composition: Any) -> Any:
        texts = [message.text for message in composition.messages]
        asked.append(texts[1])
        if texts[-1] != "done":
            return ToolCall(name="act", arguments={})
        if kill and texts[1] == "third":
            raise Killed
        return texts[1]

    agent = Agent(ScriptedModel.repeat(reply), "x", tools=[act], name="worker")
    rows = [{"input": text, "expected": text} for text in ("first", "second", "third", "fourth")]
    kill = True
    with pytest.raises(BaseExceptionGroup):
        evaluate_sync(agent, rows, [exact], out=out, concurrency=1)
    with out.open("ab") as file:
        file.write(b'{"row": 9, "pa')  # a line that a kill cut
    with pytest.raises(EvaluationError):
        evaluate_sync(agent, [*rows[:2], {**rows[2], "input": "other"}, rows[3]], [exact], out=out)
    kill = False
    report = evaluate_sync(agent, rows, [exact], out=out, concurrency=1)
    assert report.reused == 2 and report.summary("exact").interval.mean == 1
    # The third run continued after its tool, which acted once.
    assert asked == ["first"] * 2 + ["second"] * 2 + ["third"] * 3 + ["fourth"] * 2
    assert len(keys) == len(set(keys)) == 4
    again = evaluate_sync(agent, rows, [exact], out=out)
    assert again.reused == 4 and again.outcomes == report.outcomes and len(asked) == 9
    changes: list[Callable[[], Any]] = [
        lambda: evaluate_sync(agent, [{**rows[0], "expected": "other"}, *rows[1:]], [exact], out=out),
        lambda: evaluate_sync(agent, rows, [contains], out=out),
        lambda: evaluate_sync(agent.with_changes(instructions="y"), rows, [exact], out=out),
    ]
    for change in changes:
        with pytest.raises(EvaluationError):
            change()
    assert len(asked) == 9
    out.rename(out.with_name("moved.jsonl"))
    for _ in range(2):
        with pytest.raises(EvaluationError, match="contains the journals of an evaluation whose file"):
            evaluate_sync(agent, rows, [exact], out=out)
    assert len(asked) == 9


def test_only_failed_runs_and_failed_scores_are_repeated(tmp_path: Path) -> None:
    is_broken = True
    asked: list[str] = []

    def reply(composition: Any) -> Any:
        text = composition.messages[-1].text
        asked.append(text)
        if is_broken and text == "second":
            raise ConnectionError("no network")
        return text

    def strict(row: EvalRow, result: Any) -> float:
        if is_broken and row.input == "third":
            raise ZeroDivisionError
        return 1

    agent = Agent(ScriptedModel.repeat(reply), "x")
    rows = [{"input": text, "expected": text} for text in ("first", "second", "third")]
    options: Any = {"out": tmp_path / "out.jsonl", "concurrency": 1, "locale": "de", "tenant": "acme"}
    with pytest.raises(ScoresFailed) as caught:
        evaluate_sync(agent, rows, [exact, strict], **options)
    assert [each.row.id for each in caught.value.report.failures] == ["2"]
    is_broken = False
    report = evaluate_sync(agent, rows, [exact, strict], **options)
    assert report.reused == 1 and report.values("strict") == report.values("exact") == {"1": [1], "2": [1], "3": [1]}
    assert asked == ["first", "second", "third", "second"]


def test_a_row_without_an_expected_answer_has_no_value_of_scores_that_compare_it() -> None:
    agent = Agent(ScriptedModel.repeat("None"), "x")
    for score in (exact, contains, numeric, choice, json_equal):
        for row in ({"input": "x"}, {"input": "x", "expected": []}):
            with pytest.raises(ScoresFailed):
                print(score, row, evaluate_sync(agent, [row], [score]))


def test_no_run_starts_after_the_money_is_spent(tmp_path: Path) -> None:
    reply = Reply(Message("assistant", "ok"), usage=Usage(1_000_000, 0))
    agent = Agent(ScriptedModel.repeat(reply, price=Price(input=1, output=1)), "x")
    rows = [{"input": "x", "expected": "ok"}] * 5
    with raises(EvaluationStopped, name="money") as caught:
        evaluate_sync(agent, rows, [exact], money=2.5, concurrency=1, out=tmp_path / "out.jsonl")
    assert len(caught.value.report.outcomes) == 3
    report = evaluate_sync(agent, rows, [exact], money=10, out=tmp_path / "out.jsonl")
    assert report.reused == 3 and report.usage.money == pytest.approx(5)
    unpriced = ScriptedModel.repeat(reply)
    summarised = agent.with_changes(compaction=Summarise(unpriced, tokens=100))
    for tried, options in ((Agent(unpriced, "x"), {}), (agent, {"model": unpriced}), (summarised, {})):
        with raises(EvaluationError, name="money"):
            evaluate_sync(tried, rows, [exact], money=100, **options)
    assert not unpriced.requests


def reported(values: dict[str, list[float]], name: str = "right") -> EvaluationReport:
    """Return the report of an agent whose runs have these values."""
    waiting = {row: iter(each) for row, each in values.items()}

    def score(row: EvalRow, result: Any) -> float:
        return next(waiting[row.id])

    score.__name__ = name
    rows = [{"input": "x", "id": row} for row in values]
    repeats = len(next(iter(values.values())))
    return evaluate_sync(Agent(ScriptedModel.repeat("ok"), "x"), rows, [score], repeats=repeats, concurrency=1)


def test_two_versions_are_compared_row_by_row() -> None:
    before = reported({"a": [0], "b": [1], "c": [0.5], "d": [0]})
    after = reported({"b": [0], "a": [1], "c": [0.5], "e": [1]})
    (difference,) = after.compare(before)
    assert [(each.row, each.before, each.after) for each in after.changes(before)] == [("b", 1, 0), ("a", 0, 1)]
    assert "| right | 3 | 0.500 | 0.500 | +0.000 |" in after.markdown(
        before
    ) and "| b | right | 1 | 0 |  |" in after.markdown(before)
    # The score of all rows is 0.625, and of the rows in common 0.5 as before.
    assert after.below({"right": "before"}, before) == after.below({"right": 0.6}) == []
    assert len(after.below({"right": "before+0.1"}, before)) == len(after.below({"right": 0.7})) == 1
    assert 'failures="1"' in after.junit({"right": " before + 0.01"}, before)
    assert after.below({"right": "before -\t0.1"}, before) == []
    assert len(after.below({"right": "before +\u00a0.1"}, before)) == 1
    for threshold, earlier, name in (("before", None, "before"), ("after", before, "thresholds")):
        with raises(EvaluationError, name=name):
            after.below({"right": threshold}, earlier)
    assert difference.better == ("a",) and difference.worse == ("b",)
    assert (difference.before, difference.after, difference.interval.mean) == (0.5, 0.5, 0)
    assert -1 <= difference.interval.low <= 0 <= difference.interval.high <= 1
    with raises(EvaluationError, name="before"):
        after.compare(reported({"z": [1]}))
    with raises(EvaluationError, name="before"):
        after.compare(reported({"a": [1]}, "other"))


DAMAGED_LINES = (b"[]", b"{}", b'{"row": 0, "part": 0}', b'{"row": "a", "part": 0}', b'{"row": null, "part": 0}')


def test_results_in_a_file_are_compared_and_a_changed_row_is_another_row(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    evaluate_sync(calculator(), ROWS, [exact], out=out)
    with out.open("ab") as file:
        file.write(b'{"row": 9, "pa')  # another process is writing
    before = read_report(out)
    assert before.values("exact") == {"1": [1], "six": [0], "3": [0]} and before.tags == ["product", "sum"]
    assert [outcome.error for outcome in before.outcomes] == ["", "", "ConnectionError: no network"]
    better = Agent(ScriptedModel.repeat("6"), "x", name="calculator")
    changed = [{**ROWS[0], "input": "5+1", "expected": "6"}, *ROWS[1:]]
    (difference,) = evaluate_sync(better, changed, [exact]).compare(before)
    assert difference.rows == 2 and (difference.better, difference.worse) == (("six",), ())
    lines = out.read_bytes().splitlines()[:-1]
    for text in (
        b"",
        b"{}",
        b"- input: x\n",
        *[b"\n".join(lines).replace(b"[1.0,", b"[%s," % value) + b"\n" for value in (b'"nan"', b"1e999", b'"x"')],
        *[b"\n".join([*lines, damaged, b""]) for damaged in DAMAGED_LINES],
        b"\n".join(lines).replace(b'"steps":1', b'"steps":1e999') + b"\n",
        b"\n".join(lines).replace(b'"input_tokens":', b'"input_tokens":"many","cached_tokens":') + b"\n",
    ):
        out.write_bytes(text)
        with pytest.raises(EvaluationError):
            print(text, read_report(out))
    with pytest.raises(EvaluationError):
        read_report(tmp_path)


def test_an_interrupted_run_continues_with_any_input_and_a_corrupt_journal_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    row = {"input": "a\ud800", "expected": "6"}

    def stop(_: object) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_sync(Agent(ScriptedModel.repeat(stop), name="a"), [row], [exact], out=out)
    agent = Agent(ScriptedModel.repeat("6"), name="a")
    (journal,) = (tmp_path / "out.jsonl.runs").iterdir()
    head = journal.read_bytes()
    for text in (b"{x\n", b"[1]\n", b"{}\n", b"\xff\n", b"[" * 100_000 + b"\n"):
        journal.write_bytes(text)
        with raises(EvaluationError, name="out", path=str(journal)):
            evaluate_sync(agent, [row], [exact], out=out)
    journal.write_bytes(head)
    assert evaluate_sync(agent, [row], [exact], out=out).values("exact") == {"1": [1]}


def test_repeats_give_pass_at_k_and_pass_all_k() -> None:
    summary = reported({"a": [1, 0, 1], "b": [0, 0, 0]}).summary("right")
    assert summary.pass_at == pytest.approx({1: 1 / 3, 2: 1 / 2, 3: 1 / 2})
    assert summary.pass_all == pytest.approx({1: 1 / 3, 2: 1 / 6, 3: 0})
    assert reported({"a": [0.5, 1]}).summary("right").pass_at == {}
    # All choices of runs.
    for repeats in range(1, 7):
        for successes in range(repeats + 1):
            runs = [1] * successes + [0] * (repeats - successes)
            for tries in range(1, repeats + 1):
                draws = list(itertools.combinations(runs, tries))
                assert pass_at(successes, repeats, tries) == pytest.approx(statistics.mean(map(max, draws)))
                assert pass_all(successes, repeats, tries) == pytest.approx(statistics.mean(map(min, draws)))


def test_intervals_are_the_intervals_of_all_resamples() -> None:
    draw = random.Random(7)
    for number in range(8):
        values = [round(draw.random(), 2) if number % 2 else float(draw.random() < 0.4) for _ in range(5)]
        means = [sum(resample) / len(values) for resample in itertools.product(values, repeat=len(values))]
        interval = mean_interval(values, seed=number)
        for bound, share in ((interval.low, 0.025), (interval.high, 0.975)):
            below = sum(mean < bound - 1e-9 for mean in means) / len(means)
            at_most = sum(mean <= bound + 1e-9 for mean in means) / len(means)
            assert below - 0.012 <= share <= at_most + 0.012, (values, bound, below, at_most)


def test_intervals_cover_the_mean_as_often_as_they_claim() -> None:
    draw = random.Random(3)
    hits = 0
    for seed in range(80):
        values = [float(draw.random() < 0.3) for _ in range(60)]
        interval = mean_interval(values, seed)
        assert interval.low <= interval.mean <= interval.high
        hits += interval.low <= 0.3 <= interval.high
    assert 70 <= hits <= 80
    assert mean_interval([1, 1]) == (1, 1, 1) and math.isnan(mean_interval([]).mean)


def test_reports_for_people_and_for_ci() -> None:
    report = evaluate_sync(calculator(), ROWS, [exact, contains])
    lines = str(report).splitlines()
    assert lines[0].split() == ["score", "rows", "mean", "95", "%"] and lines[1].split()[:3] == ["exact", "3", "0.333"]
    assert "| exact (sum) | 1 | 1.000 |" in report.markdown() and "no network" in report.markdown()
    assert report.below({"exact": 0.5, "contains": 0.3}) == ["exact is 0.333, below 0.5"]
    suite = ElementTree.fromstring(report.junit({"exact": 0.5, "contains": 0.3}))[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    failure = suite[0].find("failure")
    assert failure is not None and "six" in (failure.text or "")
    with raises(EvaluationError, name="score", suggestion=None):
        report.below({"exat": 1})
    hostile = Agent(ScriptedModel(["</failure>\x00\ud800|`[a](http://x)"]), "x")
    broken = evaluate_sync(hostile, [{"input": "x", "expected": "<&|"}], [exact])
    assert ElementTree.fromstring(broken.junit({"exact": 1})) is not None
    name = 'a\x01\ud800<"'
    (case,) = ElementTree.fromstring(reported({"a": [0]}, name).junit({name: 1})).iter("testcase")
    assert case.get("name") == 'a  <"' and len(case) == 1
    assert broken.markdown().count("\n| 1 |") == 1 and "`[" not in broken.markdown() and "\\<&\\|" in broken.markdown()


async def test_progress_is_reported_after_every_run() -> None:
    seen: list[tuple[int, int, int]] = []
    await evaluate(calculator(), ROWS, [exact], progress=lambda now: seen.append((now.done, now.total, now.failed)))
    assert seen[-1] == (3, 3, 1) and [done for done, *_ in seen] == [1, 2, 3]
