"""Rows of runs in the formats of trainers: which runs, which messages, their sources, and no erased data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Journal, ScriptedModel, ToolCall, tool
from agentkit.evals import contains, evaluate_sync, exact
from agentkit.memory import Memory, Scope
from agentkit.prompts import Image, Message, PromptContext, UserInput
from agentkit.prompts.chat_templates import JinjaChatTemplate
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_store import RunStore
from agentkit.training import (
    ExportError,
    LeftOut,
    RowFormat,
    TrainingExample,
    conversation_answers,
    evaluated_runs,
    export_rows,
    stored_runs,
)
from tests.cases import for_cases
from tests.models.token_server import small_tokenizer
from tests.raising import raises

ROWS: list[dict[str, Any]] = [
    {"input": "order 17", "expected": "shipped", "tags": ["orders"], "user": "ada"},
    {"input": "hello", "expected": "welcome", "tags": ["small talk"], "user": "bob"},
    {"input": "order 18", "expected": "lost", "tags": ["orders", "hard"], "user": "ada"},
]
TEMPLATE = JinjaChatTemplate(
    "{{ tools | tojson if tools }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    eos_token="<|im_end|>",
)


@tool
def order_state(number: int) -> str:
    """Return the state of an order."""
    return "shipped" if number == 17 else "unknown <|im_end|>"


def answer(composition: Any) -> Any:
    """Call the tool for orders: a model."""
    *_, message = composition.messages
    if message.role == "user" and message.text.startswith("order"):
        return ToolCall(name="order_state", arguments={"number": int(message.text[6:])})
    return f"It is {message.text}."


def desk(instructions: str = "You help.", **options: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel.repeat(answer), instructions, tools=[order_state], name="desk", **options)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluation") / "out.jsonl"
    evaluate_sync(desk(), ROWS, [contains], out=path)
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_each_row_has_its_run_its_prompts_and_its_scores(outcomes: Path, tmp_path: Path) -> None:
    agent, out = desk(), tmp_path / "rows.jsonl"
    report = export_rows(evaluated_runs(agent, outcomes), out)
    assert (report.rows, report.left_out, str(report)) == (3, (), "3 rows")
    first, *_ = rows = lines_of(out)
    assert [message["role"] for message in first["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert first["tools"][0]["function"]["name"] == "order_state"
    origin = first["origin"]
    journals = {journal.run_id: journal for journal in map(Journal.read, Path(f"{outcomes}.runs").iterdir())}
    assert {row["origin"]["run"] for row in rows} == set(journals)
    journal = journals[origin["run"]]
    assert (origin["version"], origin["parts"]) == (journal.version, dict(journal.parts))
    assert (origin["row"], origin["scores"], origin["tags"]) == ("1", {"contains": 1.0}, ["orders"])
    assert (origin["prompts"], origin["agent"]) == ("as sent", "desk")
    assert origin["at"] == next(entry.at for entry in journal.entries)


NOW = datetime.now(UTC)
SELECTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"minimum": {"contains": 1}}, ["1"]),
    ({"tags": ["orders"]}, ["1", "3"]),
    ({"tags": ["hard", "small talk"]}, ["2", "3"]),
    ({"tags": ["orders"], "minimum": {"contains": 0.5}}, ["1"]),
    ({"since": NOW - timedelta(hours=1), "until": NOW + timedelta(hours=1)}, ["1", "2", "3"]),
    ({"since": NOW + timedelta(hours=1)}, []),
    ({"until": NOW - timedelta(hours=1)}, []),
]


@for_cases(("selection", "expected"), SELECTIONS)
def test_runs_are_selected_by_score_tag_and_date(
    outcomes: Path, tmp_path: Path, selection: dict[str, Any], expected: list[str]
) -> None:
    out = tmp_path / "rows.jsonl"
    report = export_rows(evaluated_runs(desk(), outcomes), out, **selection)
    assert [row["origin"]["row"] for row in lines_of(out)] == expected
    assert report.rows == len(expected)
    assert sum(report.excluded.values()) == len(ROWS) - len(expected)
    assert {condition.partition(" ")[0] for condition in report.excluded} <= set(selection)


def test_rows_for_openai_have_documented_fields_and_weights(outcomes: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    export_rows(evaluated_runs(desk(), outcomes), out, format="openai", tags=["orders"])
    rows = lines_of(out)
    for row in rows:
        assert set(row) == {"messages", "tools"}
        for message in row["messages"]:
            assert set(message) <= {"role", "content", "tool_calls", "tool_call_id", "name", "weight"}
            assert message.get("weight") == (1 if message["role"] == "assistant" else None)
    assert isinstance(rows[0]["messages"][2]["tool_calls"][0]["function"]["arguments"], str)
    origins = lines_of(tmp_path / "rows.jsonl.origins.jsonl")
    assert [origin["row"] for origin in origins] == ["1", "3"]


def test_earlier_answers_have_the_weight_0(tmp_path: Path) -> None:
    history = [Message("user", "Hi"), Message("assistant", "Hello.")]
    evaluate_sync(
        desk(), [{"input": "bye", "history": history, "expected": "bye"}], [contains], out=tmp_path / "out.jsonl"
    )
    out = tmp_path / "rows.jsonl"
    export_rows(evaluated_runs(desk(), tmp_path / "out.jsonl"), out, format="openai")
    (row,) = lines_of(out)
    assert [message.get("weight") for message in row["messages"]] == [None, None, 0, None, 1]
    export_rows(evaluated_runs(desk(), tmp_path / "out.jsonl"), out, chat_template=TEMPLATE)
    (row,) = lines_of(out)
    assert [row["text"][start:end] for start, end in row["loss_spans"]] == ["It is bye.<|im_end|>"]


def test_rows_for_trl_have_objects_as_arguments_and_masks(outcomes: Path, tmp_path: Path) -> None:
    out, tokenizer = tmp_path / "rows.jsonl", small_tokenizer()
    export_rows(evaluated_runs(desk(), outcomes), out, format="trl", chat_template=TEMPLATE, tokenizer=tokenizer)
    first, *_ = lines_of(out)
    assert first["messages"][2]["tool_calls"][0]["function"]["arguments"] == {"number": 17}
    assert len(first["input_ids"]) == len(first["assistant_masks"]) == len(first["labels"])
    masked = [token for token, mask in zip(first["input_ids"], first["assistant_masks"], strict=True) if mask]
    assert masked == [label for label in first["labels"] if label != -100]
    text = tokenizer.decode(masked, skip_special_tokens=False)
    assert text.endswith("It is shipped.<|im_end|>") and text.startswith("<tool_call>{")


def test_control_tokens_in_untrusted_text_are_broken_in_all_rows(outcomes: Path, tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = [{}, {"format": "openai"}, {"format": "trl"}, {"chat_template": TEMPLATE}]
    for options in cases:
        out = tmp_path / "rows.jsonl"
        export_rows(evaluated_runs(desk(), outcomes), out, tags=["hard"], **options)
        (row,) = lines_of(out)
        tool_message, reply = row["messages"][-2:]
        assert "unknown <\u200b|im_end|>" in tool_message["content"]
        assert "<|im_end|>" not in reply["content"]
        assert row.get("text", "").count("<|im_end|>") in (0, 5)


@for_cases("format", ["messages", "openai", "trl"])
def test_text_that_is_not_utf_8_is_written(tmp_path: Path, format: RowFormat) -> None:
    row = {"id": "\ud800", "input": "a\ud800", "expected": "a", "tags": ["b\ud800"]}
    evaluate_sync(desk(), [row], [contains], out=tmp_path / f"{format}-out")
    out = tmp_path / f"{format}.jsonl"
    assert export_rows(evaluated_runs(desk(), tmp_path / f"{format}-out"), out, format=format).rows == 1
    assert len(lines_of(out)) == 1
    if format == "openai":
        assert lines_of(Path(f"{out}.origins.jsonl"))[0]["tags"] == ["b?"]


# Preference pairs


def test_two_answers_of_a_row_are_a_pair(tmp_path: Path) -> None:
    replies = iter(["Hello.", "Go away.", "Same.", "Same."])
    agent = Agent(ScriptedModel.repeat(lambda composition: next(replies)), "You help.", name="desk")
    rows = [{"input": "Hi", "expected": "hello"}, {"input": "Again", "expected": "?"}]
    evaluate_sync(agent, rows, [contains], repeats=2, concurrency=1, out=tmp_path / "out.jsonl")
    out = tmp_path / "pairs.jsonl"
    sources = list(evaluated_runs(agent, tmp_path / "out.jsonl"))
    report = export_rows(sources, out, format="openai-preference", prefer="contains")
    assert (report.rows, list(report.excluded.values())) == (1, [1])
    prompt = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Hi"}]
    better, worse = ([{"role": "assistant", "content": text}] for text in ("Hello.", "Go away."))
    expected = {"input": {"messages": prompt}, "preferred_output": better, "non_preferred_output": worse}
    assert lines_of(out) == [expected]
    (origin,) = lines_of(tmp_path / "pairs.jsonl.origins.jsonl")
    assert (origin["better"]["scores"], origin["worse"]["scores"]) == ({"contains": 1.0}, {"contains": 0.0})
    export_rows(sources, out, format="trl-preference", prefer="contains")
    (row,) = lines_of(out)
    assert (row["prompt"], row["chosen"], row["rejected"]) == (prompt, better, worse)


def test_each_turn_of_a_conversation_is_a_row_and_no_pair(tmp_path: Path) -> None:
    rows = [{"input": "hello", "script": ["order 17", "bye"], "expected": "bye"}] + [ROWS[1]] * 10
    evaluate_sync(desk(), rows, [contains], out=tmp_path / "out")
    sources, out = list(evaluated_runs(desk(), tmp_path / "out")), tmp_path / "rows.jsonl"
    assert export_rows(sources, out).rows == 13
    origins = [row["origin"] for row in lines_of(out)]
    assert [(origin["row"], origin.get("turn")) for origin in origins[:4]] == [
        ("1", 1),
        ("1", 2),
        ("1", 3),
        ("2", None),
    ]
    assert [int(origin["row"]) for origin in origins[3:]] == list(range(2, 12))
    assert [message["role"] for message in lines_of(out)[2]["messages"]].count("user") == 3
    report = export_rows(sources, out, format="trl-preference", prefer="contains")
    assert [left.place for left in report.left_out] == [f"row 1, run {origin['run']}" for origin in origins[:3]]


def test_runs_with_tools_are_pairs_for_trl_and_are_listed_for_openai(tmp_path: Path) -> None:
    calls = iter([ToolCall(name="order_state", arguments={"number": 17}), "It is shipped.", "No idea."])
    agent = Agent(ScriptedModel.repeat(lambda composition: next(calls)), tools=[order_state], name="desk")
    evaluate_sync(
        agent, [{"input": "Where?", "expected": "shipped"}], [contains], repeats=2, concurrency=1, out=tmp_path / "o"
    )
    sources = list(evaluated_runs(agent, tmp_path / "o"))
    report = export_rows(sources, tmp_path / "a.jsonl", format="openai-preference", prefer="contains")
    assert report.rows == 0 and "tool calls" in report.left_out[0].reason
    export_rows(sources, tmp_path / "b.jsonl", format="trl-preference", prefer="contains")
    (row,) = lines_of(tmp_path / "b.jsonl")
    assert [message["role"] for message in row["chosen"]] == ["assistant", "tool", "assistant"]


# Skipped runs


def test_runs_with_other_prompts_are_skipped_unless_present_prompts_are_requested(
    outcomes: Path, tmp_path: Path
) -> None:
    changed, out = desk("You help a lot."), tmp_path / "rows.jsonl"
    report = export_rows(evaluated_runs(changed, outcomes), out)
    assert report.rows == 0 and len(report.left_out) == 3
    assert "prompts of the agent have changed" in report.left_out[0].reason
    export_rows(evaluated_runs(changed, outcomes, uses_present_prompts=True), out)
    row = lines_of(out)[0]
    assert row["messages"][0]["content"] == "You help a lot."
    assert row["origin"]["prompts"] == "present"
    assert row["origin"]["parts"] != dict(changed.definition.version.hashes)


def test_media_failed_runs_and_broken_journals_are_listed(tmp_path: Path) -> None:
    agent, out = desk(), tmp_path / "rows.jsonl"
    image = Image(b"\x89PNG", media_type="image/png", name="cat.png")
    composition = agent.compose(PromptContext(user_input=UserInput((image, "Hi"))))
    example = next(each for each in run_sources(tmp_path) if isinstance(each, TrainingExample))
    report = export_rows([replace(example, composition=composition), LeftOut("run x", "why")], out)
    assert report.rows == 0 and not lines_of(out)
    assert "cat.png" in report.left_out[0].reason and report.left_out[1] == LeftOut("run x", "why")
    evaluate_sync(agent, ROWS[:2], [contains], out=tmp_path / "out")
    broken, *_ = sorted((tmp_path / "out.runs").iterdir())
    broken.write_text("{")
    report = export_rows(evaluated_runs(agent, tmp_path / "out"), out)
    assert report.rows == 1 and "journal cannot be read" in report.left_out[0].reason


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "unknown format": ({"format": "opnai"}, "format"),
    "unknown score": ({"minimum": {"contans": 1}}, "score"),
    "unknown tag": ({"tags": ["order"]}, "tag"),
    "no number": ({"minimum": {"contains": "1"}}, "minimum.contains"),
    "no time zone": ({"since": datetime(2026, 1, 1)}, "since"),
    "ids without a template": ({"tokenizer": small_tokenizer()}, "tokenizer"),
    "text for OpenAI": ({"format": "openai", "chat_template": TEMPLATE}, "template"),
    "text for TRL": ({"format": "trl", "chat_template": TEMPLATE}, "template"),
    "pairs without a score": ({"format": "trl-preference"}, "prefer"),
    "a score without pairs": ({"prefer": "contains"}, "prefer"),
    "unknown preference": ({"prefer": "exat", "format": "trl-preference"}, "score"),
}


@for_cases("case", INVALID)
def test_an_invalid_argument_writes_no_file(outcomes: Path, tmp_path: Path, case: str) -> None:
    options, name = INVALID[case]
    out = tmp_path / "rows.jsonl"
    out.write_text("before")
    with raises(ExportError, name=name):
        export_rows(evaluated_runs(desk(), outcomes), out, **options)
    assert out.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_file_that_cannot_be_written_or_read_is_refused(outcomes: Path, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "rows.jsonl"):
        with raises(ExportError, name="out"):
            export_rows(evaluated_runs(desk(), outcomes), path)
    with raises(ExportError, path=str(tmp_path / "none")):
        export_rows(evaluated_runs(desk(), tmp_path / "none"), tmp_path / "rows.jsonl")
    (tmp_path / "other").write_text('{"a": 1}\n')
    with raises(ExportError, path=str(tmp_path / "other")):
        list(evaluated_runs(desk(), tmp_path / "other"))


def test_an_export_that_fails_leaves_the_file_before(outcomes: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    out.write_text("before")

    def sources() -> Iterator[Any]:
        yield from evaluated_runs(desk(), outcomes)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_rows(sources(), out)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"] and out.read_text() == "before"


def test_two_exports_do_not_write_one_file(outcomes: Path, tmp_path: Path) -> None:
    out, refused = tmp_path / "rows.jsonl", 0

    def sources() -> Iterator[Any]:
        nonlocal refused
        yield from evaluated_runs(desk(), outcomes)
        with raises(ExportError, name="out"):
            export_rows(evaluated_runs(desk(), outcomes), out)
        refused += 1

    assert export_rows(sources(), out).rows == 3
    assert refused == 1 and [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.skipif(os.name != "posix", reason="Windows removes no open file")
def test_an_export_that_starts_while_another_export_ends_writes_its_file(
    outcomes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    lock, removed = fcntl.flock, []

    def lock_removed(file: int, operation: int) -> None:
        # The other export ends, and removes its draft, after this export opened the draft.
        for draft in tmp_path.glob(".*.part"):
            if not removed:
                draft.unlink()
                removed.append(draft)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", lock_removed)
    assert export_rows(evaluated_runs(desk(), outcomes), tmp_path / "rows.jsonl").rows == 3
    assert removed and [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_the_rest_of_a_killed_export_is_not_in_the_file(outcomes: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    for name in (".rows.jsonl.part", ".rows.jsonl.new", ".rows.jsonl.origins.new"):
        (tmp_path / name).write_text('[{"messages": "of an erased user"}, {}]\n' * 1_000)
    assert export_rows(evaluated_runs(desk(), outcomes), out, format="openai").rows == 3
    assert "erased user" not in out.read_text() and len(lines_of(out)) == 3
    assert len(lines_of(tmp_path / "rows.jsonl.origins.jsonl")) == 3
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_rows_are_written_as_parquet(outcomes: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out, tokenizer = tmp_path / "rows.parquet", small_tokenizer()
    export_rows(evaluated_runs(desk(), outcomes), out, format="trl", chat_template=TEMPLATE, tokenizer=tokenizer)
    lines = tmp_path / "rows.jsonl"
    export_rows(evaluated_runs(desk(), outcomes), lines, format="trl", chat_template=TEMPLATE, tokenizer=tokenizer)
    table = parquet.read_table(out).to_pylist()
    expected = lines_of(lines)
    assert [row["input_ids"] for row in table] == [row["input_ids"] for row in expected]
    assert [json.loads(row["tools"]) for row in table] == [row["tools"] for row in expected]
    assert json.loads(table[0]["origin"]) == expected[0]["origin"]
    assert json.loads(table[0]["messages"][2]["tool_calls"][0]["function"]["arguments"]) == {"number": 17}
    export_rows([], out)
    assert parquet.read_table(out).to_pylist() == []


# Erasure


def run_sources(folder: Path) -> list[Any]:
    evaluate_sync(desk(), ROWS[:1], [contains], out=folder / "one")
    return list(evaluated_runs(desk(), folder / "one"))


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "memory") as memory:
        yield memory


def test_the_runs_of_an_erased_user_are_not_exported(memory: Memory, tmp_path: Path) -> None:
    agent, out = desk(memory=memory), tmp_path / "rows.jsonl"
    evaluate_sync(agent, ROWS, [contains], out=tmp_path / "out")
    assert export_rows(evaluated_runs(agent, tmp_path / "out"), out).rows == 3
    memory.erase(Scope(user="ada"))
    report = export_rows(evaluated_runs(agent, tmp_path / "out"), out)
    assert [row["origin"]["row"] for row in lines_of(out)] == ["2"]
    assert [(left.reason, left.is_erased) for left in report.left_out] == [("it was erased", True)] * 2
    evaluate_sync(agent, ROWS[:1], [contains], out=tmp_path / "later")
    assert export_rows(evaluated_runs(agent, tmp_path / "later"), out).rows == 1  # a run after the erasure
    memory.erase("local")
    assert export_rows(evaluated_runs(agent, tmp_path / "out"), out).rows == 0


@for_cases("when", [0, 1, 2])
def test_a_user_who_is_erased_during_the_export_is_not_in_the_file(memory: Memory, tmp_path: Path, when: int) -> None:
    agent, out = desk(memory=memory), tmp_path / f"rows{when}.jsonl"
    evaluate_sync(agent, ROWS, [contains], out=tmp_path / f"out{when}")
    seen: list[Any] = []

    def erase(source: Any) -> None:
        if len(seen) == when:
            memory.erase(Scope(user="ada"))
        seen.append(source)

    formats: tuple[RowFormat, ...] = ("trl", "openai")
    for format in formats:
        report = export_rows(evaluated_runs(agent, tmp_path / f"out{when}"), out, format=format, on_source=erase)
        assert report.rows == 1
        assert "order 1" not in out.read_text()
    assert len(lines_of(Path(f"{out}.origins.jsonl"))) == 1


def stored(store: RunStore, agent: Agent[Any, Any], text: str, **fields: Any) -> RunRecord:
    """Run an agent, and store its run."""
    result = agent.run_sync(text)
    now = time.time()
    record = RunRecord(
        run_id=result.run_id, agent=agent.name, state="finished", created_at=now, updated_at=now, user="ada"
    )
    store.add(replace(record, **fields), result.journal.dumps())
    return record


def test_stored_runs_are_exported_and_a_run_that_is_deleted_meanwhile_is_not(tmp_path: Path) -> None:
    agent, store, out = desk(), RunStore(), tmp_path / "rows.jsonl"
    records = [stored(store, agent, text) for text in ("order 17", "hello", "bye")]
    stored(store, agent, "other", tenant="acme", tags=("b",))
    stored(store, agent, "failed", state="failed")
    assert export_rows(stored_runs(agent, store, tenant=""), out).rows == 3
    assert [row["origin"]["run"] for row in lines_of(out)] == [record.run_id for record in reversed(records)]
    assert export_rows(stored_runs(agent, store, user="bob"), out).rows == 0
    assert export_rows(stored_runs(agent, store), out, tags=["b"]).rows == 1

    def delete(source: Any) -> None:
        store.delete(records[0].run_id, records[2].run_id)

    report = export_rows(stored_runs(agent, store, tenant=""), out, on_source=delete)
    assert [row["origin"]["run"] for row in lines_of(out)] == [records[1].run_id]
    assert sum("erased" in left.reason or "deleted" in left.reason for left in report.left_out) == 2
    store.close()


def test_answers_of_conversations_are_exported_until_they_are_deleted(memory: Memory, tmp_path: Path) -> None:
    agent, out = desk(memory=memory), tmp_path / "rows.jsonl"
    for text in ("order 17", "bye"):
        agent.run_sync(text, session=memory.session("s"))
    assert export_rows(conversation_answers(agent, memory, "s"), out).rows == 2
    assert {row["origin"]["session"] for row in lines_of(out)} == {"s"}
    report = export_rows(
        conversation_answers(agent, memory, "s"), out, on_source=lambda source: memory.delete_session("s")
    )
    assert report.rows == 0 and not lines_of(out)


def test_a_memory_reports_erasures_of_a_subject_and_of_larger_subjects(memory: Memory) -> None:
    now = time.time()
    ada = Scope(user="ada")
    assert not memory.was_erased(ada, now)
    memory.erase(ada)
    assert memory.was_erased(ada, now) and memory.was_erased(Scope(user="ada", session="s"), now)
    assert not memory.was_erased(Scope(user="bob"), now) and not memory.was_erased("local", now)
    assert not memory.was_erased(ada, now + 86_400)
    assert not memory.was_erased(Scope("acme", user="ada"), now)


def test_a_score_of_two_evaluations_is_compared_in_one_export(outcomes: Path, tmp_path: Path) -> None:
    evaluate_sync(desk(), ROWS, [exact], out=tmp_path / "second")
    sources = [*evaluated_runs(desk(), outcomes), *evaluated_runs(desk(), tmp_path / "second")]
    out = tmp_path / "rows.jsonl"
    assert export_rows(sources, out, minimum={"contains": 0.5}).rows == 1
