"""Recalled documents and facts reach the prompt, except for texts that the prompt already shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Chain, Event, Journal, Recalled, RecallOptions, ScriptedModel, Session
from agentkit.errors import AgentDefinitionError
from agentkit.memory import Memory
from agentkit.prompts import (
    Conversation,
    Document,
    Fact,
    KnowledgePrompt,
    Layers,
    MemoPrompt,
    Message,
    PromptContext,
    RecalledMessage,
    RecalledPrompt,
)
from agentkit.run.parts.recaller import RecallResult, recall
from tests.raising import raises
from tests.runtime.scripts import Library

LAYERS = Layers(before_input=[MemoPrompt(), RecalledPrompt(), KnowledgePrompt()])


def run_and_recall(agent: Agent, text: str, session: object) -> tuple[str, Recalled]:
    """Run, and return the user message that was sent and the recalled items."""
    events: list[Event] = []
    result = agent.run_sync(text, session=session, on_event=events.append)  # type: ignore[arg-type]
    (recalled,) = [event for event in events if isinstance(event, Recalled)]
    return result.composition.user.text, recalled


def test_documents_facts_and_earlier_conversations_reach_the_prompt(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        memory.session("before").append(Message("user", "The heron nests behind the weir.", name="Ada"))
        memory.facts.add("Herons are birds.")
        agent = Agent(ScriptedModel(["ok"] * 3), layers=LAYERS, memory=memory)
        session = memory.session("now")
        sent, recalled = run_and_recall(agent, "Where does the heron nest?", session)
        assert "The heron nests behind the weir." in sent
        assert "Herons are birds." in sent
        assert [fact.text for fact in recalled.knowledge] == ["Herons are birds."]
        assert recalled.degraded == ()
        assert "The heron nests" in agent.compose("And the heron?", session=session).user.text


def test_messages_in_the_prompt_are_not_recalled_again(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        session = memory.session("now")
        agent = Agent(ScriptedModel(["ok"] * 3), layers=LAYERS, memory=memory)
        run_and_recall(agent, "The heron nests behind the weir.", session)
        _, recalled = run_and_recall(agent, "Where does the heron nest?", session)
        assert recalled.documents == recalled.recalled == ()
        _, elsewhere = run_and_recall(agent, "Where does the heron nest?", memory.session("another"))
        assert elsewhere.recalled[0].text == "The heron nests behind the weir."
        assert memory.recall_logs()[-1].conversation == "another"


def test_a_conversation_in_another_store_hides_nothing(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        memory.facts.add("Herons are birds.")
        agent = Agent(ScriptedModel(["ok"] * 2), layers=LAYERS, memory=memory)
        said = [Message("user", "Herons?"), Message("assistant", "Yes.")]
        for session in (Session(), Session(conversation=Conversation(said))):
            sent, recalled = run_and_recall(agent, "What are herons?", session)
            assert "Herons are birds." in sent
            assert recalled.degraded == ()


def test_messages_that_a_budget_cut_from_the_conversation_are_recalled(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        session = memory.session("now")
        session.append(Message("user", "The heron nests behind the weir."), Message("assistant", "I see."))
        for number in range(20):
            session.append(Message("user", f"Number {number}: " + "and so on " * 20), Message("assistant", "I see."))
        agent = Agent(Chain(ScriptedModel(["ok"] * 3), LAYERS, budget=400), memory=memory)
        sent, recalled = run_and_recall(agent, "Where does the heron nest?", session)
        assert "The heron nests behind the weir." in [found.text for found in recalled.recalled]
        assert "The heron nests behind the weir." in sent


def test_facts_of_the_context_are_before_recalled_facts() -> None:
    class Knowing(Library):
        def recall(self, query: str) -> Answer:  # type: ignore[override]
            return Answer([Document("a chunk")])

    class Answer(list[Document]):
        knowledge = (Fact("recalled"),)

    ctx = PromptContext(user_input="hi", knowledge=[Fact("given")])
    result = Agent(ScriptedModel(["ok"]), layers=LAYERS, memory=Knowing()).run_sync(ctx)
    assert [fact.text for fact in result.composition.context.knowledge] == ["given", "recalled"]


def test_a_custom_recaller_gets_the_session_only_if_it_has_a_parameter_for_it() -> None:
    session = Session()

    class Curious:
        def recall(self, query: str, *, session: object = None, visible: int | None = None) -> list[Document]:
            return [Document(f"{query} {session is not None} {visible}")]

    assert recall(Library("a"), "hi", session) == RecallResult((Document("a", id="d0"),))
    assert recall(Curious(), "hi", session, 3).documents == (Document("hi True 3"),)
    assert recall(Curious(), "hi").documents == (Document("hi False None"),)


def test_knowledge_of_another_type_is_refused() -> None:
    class Wrong(list[Document]):
        knowledge = ("text",)

    class Knowing:
        def recall(self, query: str) -> Wrong:
            return Wrong()

    with pytest.raises(TypeError):
        recall(Knowing(), "hi")


WARRANTY = "The warranty is 99 years."


def test_answers_of_the_model_in_one_session_are_no_evidence_in_the_next(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        agent = Agent(ScriptedModel([WARRANTY, "ok", "ok"]), memory=memory)
        agent.run_sync("How long is it?", session=memory.session("one"))
        sent, recalled = run_and_recall(agent, "How long is the warranty?", memory.session("two"))
        assert "99 years" not in sent and [found.text for found in recalled.recalled] == ["How long is it?"]
        assert WARRANTY in [found.text for found in memory.recall("warranty").recalled if found.role == "assistant"]
        everything = Agent(ScriptedModel(["ok"]), memory=memory, recall=RecallOptions(roles=("user", "assistant")))
        sent, _ = run_and_recall(everything, "How long is the warranty?", memory.session("three"))
        assert "[assistant, 20" in sent and WARRANTY in sent


def test_messages_of_a_user_are_marked_as_such_and_separate_from_documents(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        memory.session("one").append(Message("user", WARRANTY, name="Bo"), said_at=1_700_000_000)
        (tmp_path / "manual.md").write_text("The warranty is 2 years.")
        memory.ingest(tmp_path / "manual.md")
        agent = Agent(ScriptedModel(["ok"]), "Answer.", memory=memory)
        result = agent.run_sync("How long is the warranty?", session=memory.session("two"))
        text = result.composition.user.text
        assert f"[user, 2023-11-14 22:13+00:00] Bo\n{WARRANTY}" in text
        assert "manual.md#0]\nThe warranty is 2 years." in text
        ctx = result.composition.context
        assert [found.text for found in ctx.documents] == ["The warranty is 2 years."]
        assert [(found.role, found.session) for found in ctx.recalled] == [("user", "one")]
        rows = {row.layer: row.prompt for row in agent.compose("How long is the warranty?").explain()}
        assert rows["before_input[1]"] == "RecalledPrompt"
        assert "untrusted" in result.composition.why("recalled[0].text").reason
        assert Journal.loads(result.journal.dumps()).entries == result.journal.entries


def test_the_request_to_repair_an_answer_is_not_recalled_as_a_message_of_the_user(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        agent = Agent(ScriptedModel([f'{{"{WARRANTY}": 1}}', "{}"]), output=dict[int, int])
        agent.run_sync("Numbers, please.", session=memory.session("one"))
        assert "99 years" in str(memory.recall("warranty", roles=("user",)).recalled)
        sent, _ = run_and_recall(
            Agent(ScriptedModel(["ok"]), memory=memory), "How long is the warranty?", memory.session("two")
        )
        assert "99 years" not in sent


def test_messages_are_recalled_only_if_some_prompt_shows_them() -> None:
    asked_for: list[Sequence[str]] = []

    def remember(query: str, roles: Sequence[str]) -> list[Document | RecalledMessage]:
        asked_for.append(roles)
        return [Document("d"), RecalledMessage("mine", "user"), RecalledMessage("the model's", "assistant")]

    shown = Agent(ScriptedModel(["ok"]), layers=Layers(before_input=RecalledPrompt()), memory=remember).compose("x")
    assert [found.text for found in shown.context.recalled] == ["mine"]
    hidden = Agent(ScriptedModel(["ok"]), layers=Layers(before_input=MemoPrompt()), memory=remember).compose("x")
    assert hidden.context.recalled == () and [found.text for found in hidden.context.documents] == ["d"]
    assert asked_for == [("user",), ()]


@pytest.mark.parametrize("roles", ["user", ("users",), ["user"], (5,), None])
def test_unknown_roles_are_refused(roles: Any, tmp_path: Path) -> None:
    with raises(AgentDefinitionError, name="roles"):
        RecallOptions(roles=roles)
