"""The inspector shows verdicts, texts that wait for a person, and the texts that a redacting model does not receive."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agentkit import Agent, AnthropicModel, Journal, OpenAIModel, Paused, ScriptedModel, Session, ToolCall, tool
from agentkit.guards import Ask, Guard, RedactingModel, Replace, guard
from agentkit.inspector.curl_command import curl_command
from agentkit.inspector.journal_view import journal_view, waiting_calls
from agentkit.inspector.local_source import LocalSource
from agentkit.inspector.played_prompt import PlayedPrompt
from agentkit.inspector.redacted_layers import redacted_layers, sent_composition
from agentkit.models import FallbackModel
from agentkit.run.engine.replay import replayed_contexts
from agentkit.run.journal.journal_outline import JournalOutline
from agentkit.run.parts.decisions import Approved

MAIL = "ada@example.com"


def gives(verdict: Any, stage: Any) -> Guard:
    def check(value: Any) -> Any:
        return verdict

    return guard(stage)(check)


@tool
def look() -> str:
    """Look."""
    return "seen"


def test_a_timeline_shows_each_verdict() -> None:
    guards = [gives(Replace("Hello"), "input"), gives(None, "output"), gives(Replace({}), "tool_call")]
    journal = Agent(ScriptedModel([ToolCall("c", "look"), "Yes."]), tools=[look], guards=guards).run_sync("Hi").journal
    events = [event for event in journal_view(JournalOutline.of(journal))["events"] if event["kind"] == "guard"]
    shown = [(event["stage"], event["subject"], event["action"], event["text"]) for event in events]
    assert shown == [
        ("input", "", "replace", "Hello"),
        ("tool_call", "c", "replace", "{}"),
        ("output", "2", "pass", ""),
    ]


@pytest.mark.parametrize("changed_by", ["decision", "guard", "guard, then decision"])
def test_a_tool_event_has_the_arguments_of_the_executed_call(changed_by: str) -> None:
    @tool(approval="always")
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    call = ToolCall("c", "pay", {"amount": 30})
    guards, decision = [], Approved()
    if "guard" in changed_by:
        guards = [gives(Replace({"amount": 20}), "tool_call")]
    if "decision" in changed_by:
        decision = Approved({"amount": 10})
    agent = Agent(ScriptedModel([call, "Done."]), tools=[pay], guards=guards)
    journal = agent.run_sync("Hi", approve={"c": decision}).journal
    events = journal_view(JournalOutline.of(journal))["events"]
    (ran,) = [event for event in events if event["kind"] == "tool"]
    executed = {"decision": 10, "guard": 20, "guard, then decision": 10}[changed_by]
    assert (json.loads(ran["arguments"]), ran["text"]) == ({"amount": executed}, f"paid {executed}")
    asked = next(event for event in events if event["kind"] == "model")
    assert json.loads(asked["calls"][0]["arguments"]) == {"amount": 30}


def test_a_waiting_call_has_the_arguments_that_a_guard_has_set() -> None:
    @tool(approval="always")
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    guards = [gives(Replace({"amount": 10}), "tool_call")]
    agent = Agent(ScriptedModel([ToolCall("c", "pay", {"amount": 30}), "Done."]), tools=[pay], guards=guards)
    with pytest.raises(Paused) as paused:
        agent.run_sync("Hi")
    journal = Journal.loads(paused.value.journal.dumps())
    assert paused.value.calls == journal.unfinished == tuple(waiting_calls(journal).values())
    assert json.loads(journal.unfinished[0].arguments) == {"amount": 10}


def test_a_text_that_waits_for_a_person_is_a_waiting_call() -> None:
    for stage, call_id in (("input", "input_check"), ("output", "output_1_check")):
        agent = Agent(ScriptedModel(["Yes."]), guards=[gives(Ask("sure?"), stage)])
        with pytest.raises(Paused) as paused:
            agent.run_sync("Hi")
        assert [*waiting_calls(paused.value.journal)] == [call_id]
        journal = agent.resume_sync(paused.value.journal, approve={call_id: True}).journal
        assert not waiting_calls(journal)


async def test_of_two_simultaneous_decisions_one_is_refused_and_the_run_continues_once() -> None:
    agent = Agent(ScriptedModel(["Yes."]), guards=[gives(Ask("sure?"), "output")], name="a")
    with pytest.raises(Paused) as paused:
        await agent.run("Hi", run_id="r1")
    source = LocalSource([agent])
    source.add(paused.value.journal, paused.value)
    decisions = {paused.value.calls[0].id: Approved()}
    answers = await asyncio.gather(*[source.decide("r1", decisions) for _ in range(2)], return_exceptions=True)
    assert sorted([type(answer).__name__ for answer in answers]) == ["ApprovalError", "NoneType"]


def test_prompts_of_guarded_runs_are_composed_again_as_they_were_sent() -> None:
    guards = [
        gives(Replace("Hello"), "input"),
        guard("input", parallel=True)(lambda text: None),
        gives(Replace("saw"), "tool_result"),
        gives(Ask(), "tool_call"),
        gives(Replace("No."), "output"),
    ]
    agent = Agent(ScriptedModel([ToolCall("c", "look"), "Yes."]), tools=[look], guards=guards)
    session = Session("s")
    sent: list[Any] = []

    def note(event: Any) -> None:
        if type(event).__name__ == "PromptComposed":
            sent.append(event.composition)

    result = agent.run_sync("Hi", session=session, on_event=note, approve=lambda call: True)
    contexts = replayed_contexts(agent.definition, result.journal, session)
    assert [agent.chain.compose(ctx).messages for ctx in contexts] == [composition.messages for composition in sent]


def test_the_texts_that_are_not_sent_are_listed_by_layer_and_no_payload_contains_them() -> None:
    inner = OpenAIModel("gpt-5-mini", api_key="x")
    for model in (RedactingModel(inner), FallbackModel(RedactingModel(inner), AnthropicModel("claude-x", api_key="x"))):
        session = Session("s")
        Agent(ScriptedModel(["Hi."])).run_sync(f"I am {MAIL}", session=session)
        composition = Agent(model, f"Ask {MAIL}.").compose(f"Still {MAIL}?", session=session)
        rows = redacted_layers(model, composition)
        assert [*rows] == ["input[0]", "conversation"]
        assert {(row["kind"], row["text"]) for row in rows["conversation"]} == {("EMAIL", MAIL)}
        sent, _ = sent_composition(model, composition)
        assert str(sent.to_openai()).count(MAIL) == 1  # the text of the developer
        assert curl_command(PlayedPrompt(model, composition)).count(MAIL) == 1
    plain = ScriptedModel([])
    assert redacted_layers(plain, composition) == {} and sent_composition(plain, composition)[0] is composition
