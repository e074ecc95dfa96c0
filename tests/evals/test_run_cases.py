"""Stored runs become rows of evaluations, without secrets and personal data, and the rows can be run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, ScriptedModel, Session, ToolCall, tool
from agentkit.errors import JournalError
from agentkit.evals import EvalRow, case_line, case_of, evaluate_sync, first_context, max_steps
from agentkit.prompts import AdditionalInfoPrompt, ContextError, Image, Layers, Template, Text, Url
from tests.raising import raises

SECRET = "Ada Lovelace"
PHONE = 491701234567


def masked(text: str) -> str:
    return text.replace(SECRET, "[name]").replace(str(PHONE), "[phone]")


@tool
def look(name: str, phone: int) -> str:
    """Look up a customer."""
    return f"{name} is a customer"


def clerk(*replies: Any) -> Agent[Any, Any]:
    info = AdditionalInfoPrompt(Template("Shop: {{ shop }}."))
    return Agent(ScriptedModel(list(replies)), layers=Layers(before_input=info), tools=[look], name="clerk")


def test_a_run_of_a_session_with_tools_kwargs_and_media_is_a_row_that_can_be_run(tmp_path: Path) -> None:
    call = ToolCall(name="look", arguments={"name": SECRET, "phone": PHONE})
    session = Session("s")
    agent = clerk(call, f"{SECRET} is known.", "Yes.", "Later.", "Again.")
    agent.run_sync({"input": f"Who is {SECRET}?", "additional_kwargs": {"shop": "z"}}, session=session)
    kwargs = {"shop": SECRET, "phones": [{"private": PHONE}], "count": 3, "open": True}
    asked = [Text(f"Is {SECRET} \u2028 here \ud800?"), Image(b"\x89PNG\r\n\x1a\n")]
    result = agent.run_sync({"input": asked, "additional_kwargs": kwargs}, session=session)
    agent.run_sync({"input": "More", "additional_kwargs": {"shop": "z"}}, session=session)
    context = first_context(result.journal, session)
    row = case_of(context, id=result.run_id, expected={"of": SECRET}, tags=["a b"], redact=masked)
    line = case_line(row)
    assert SECRET not in line and str(PHONE) not in line and "\u2028" not in line and line.isprintable()
    assert line.encode() and row.text.startswith("Is [name]") and row.expected == {"of": "[name]"}
    assert row.additional_kwargs == {"shop": "[name]", "phones": [{"private": "[phone]"}], "count": 3, "open": True}
    assert [message.role for message in row.history] == ["user", "assistant", "tool", "assistant"]
    assert json.loads(row.history[1].tool_calls[0].arguments) == {"name": "[name]", "phone": "[phone]"}
    (tmp_path / "cases.jsonl").write_text(f"{line}\n", "utf-8")
    report = evaluate_sync(agent, tmp_path / "cases.jsonl", [max_steps(1)])
    assert case_line(report.outcomes[0].row) == line and not report.failures
    sent = agent.chain.model.requests[-1].messages  # type: ignore[attr-defined]
    assert [message.text for message in sent[:4]] == [message.text for message in row.history]
    assert "Shop: [name]." in sent[4].text and "image" in sent[4].text


def test_a_text_that_is_not_redacted_is_omitted() -> None:
    def failing(text: str) -> str | None:
        if text == "none":
            return None
        raise ValueError(text)

    context = first_context(clerk("ok").run_sync({"input": "x", "additional_kwargs": {"shop": "none"}}).journal)
    row = case_of(context, expected="y", redact=failing)
    assert (row.text, row.additional_kwargs, row.expected) == ("[removed]", {"shop": "[removed]"}, "[removed]")


def test_a_run_without_its_session_is_refused_and_a_continued_session_has_its_last_message() -> None:
    session = Session("s", [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}])
    session.append({"role": "user", "content": "Three"})
    result = Agent(ScriptedModel(["ok"]), "x").run_sync(None, session=session)
    with raises(JournalError, name="session"):
        first_context(result.journal)
    row = case_of(first_context(result.journal, session))
    assert row.input == "Three" and [message.text for message in row.history] == ["One", "Two"]


def test_inputs_of_rows_are_text_or_content_parts() -> None:
    part = {"type": "text", "text": "x"}
    valid: tuple[Any, ...] = ([part], (Text("a"), Image(Url("http://x/y.png"))), "x", "")
    assert [EvalRow(input=each).text[:1] for each in valid] == ["x", "a", "x", ""]
    file = {"type": "image_url", "image_url": {"url": "/etc/passwd"}}
    wrong: Any
    for wrong in (3, None, [], {"a": 1}, [3], [{"type": "x"}], [part, 3], [file]):
        with pytest.raises((ValueError, ContextError)):
            print(wrong, EvalRow(input=wrong))
