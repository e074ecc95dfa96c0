"""What memory recalls reaches the prompt: documents, facts, and not what the prompt shows anyway."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkit import Agent, Chain, Event, InMemorySession, Recalled, ScriptedModel
from agentkit.memory import Memory
from agentkit.prompts import Conversation, Document, Fact, KnowledgePrompt, Layers, MemoPrompt, Message, PromptContext
from agentkit.recaller import Found, recall
from tests.runtime.scripts import Library

LAYERS = Layers(before_input=[MemoPrompt(), KnowledgePrompt()])


def asked(agent: Agent, text: str, session: object) -> tuple[str, Recalled]:
    """Ask, and return the user message that was sent and what was recalled for it."""
    events: list[Event] = []
    result = agent.run_sync(text, session=session, on_event=events.append)  # type: ignore[arg-type]
    (recalled,) = [event for event in events if isinstance(event, Recalled)]
    return result.composition.user.text, recalled


def test_documents_facts_and_earlier_conversations_reach_the_prompt(tmp_path: Path) -> None:
    with Memory.open(tmp_path) as memory:
        memory.session("before").append(Message("user", "The heron nests behind the weir.", name="Ada"))
        memory.facts.add("Herons are birds.")
        agent = Agent(ScriptedModel(["ok"] * 3), LAYERS, memory=memory)
        session = memory.session("now")
        sent, recalled = asked(agent, "Where does the heron nest?", session)
        assert "The heron nests behind the weir." in sent
        assert "Herons are birds." in sent
        assert [fact.text for fact in recalled.knowledge] == ["Herons are birds."]
        assert recalled.degraded == ()
        assert "The heron nests" in agent.compose("And the heron?", session=session).user.text


def test_what_the_prompt_shows_is_not_recalled_again(tmp_path: Path) -> None:
    with Memory.open(tmp_path) as memory:
        session = memory.session("now")
        agent = Agent(ScriptedModel(["ok"] * 3), LAYERS, memory=memory)
        asked(agent, "The heron nests behind the weir.", session)
        _, recalled = asked(agent, "Where does the heron nest?", session)
        assert recalled.documents == ()
        _, elsewhere = asked(agent, "Where does the heron nest?", memory.session("another"))
        assert elsewhere.documents[0].text == "The heron nests behind the weir."
        assert memory.recall_logs()[-1].conversation == "another"


def test_a_conversation_that_is_kept_elsewhere_hides_nothing(tmp_path: Path) -> None:
    with Memory.open(tmp_path) as memory:
        memory.facts.add("Herons are birds.")
        agent = Agent(ScriptedModel(["ok"] * 2), LAYERS, memory=memory)
        said = [Message("user", "Herons?"), Message("assistant", "Yes.")]
        for session in (InMemorySession(), InMemorySession(Conversation(said))):
            sent, recalled = asked(agent, "What are herons?", session)
            assert "Herons are birds." in sent
            assert recalled.degraded == ()


def test_what_a_budget_cut_from_the_conversation_is_recalled(tmp_path: Path) -> None:
    with Memory.open(tmp_path) as memory:
        session = memory.session("now")
        session.append(Message("user", "The heron nests behind the weir."), Message("assistant", "I see."))
        for number in range(20):
            session.append(Message("user", f"Number {number}: " + "and so on " * 20), Message("assistant", "I see."))
        agent = Agent(Chain(ScriptedModel(["ok"] * 3), LAYERS, budget=400), memory=memory)
        sent, recalled = asked(agent, "Where does the heron nest?", session)
        assert "The heron nests behind the weir." in [found.text for found in recalled.documents]
        assert "The heron nests behind the weir." in sent


def test_facts_of_the_context_stay_before_those_recalled() -> None:
    class Knowing(Library):
        def recall(self, query: str) -> Answer:  # type: ignore[override]
            return Answer([Document("a chunk")])

    class Answer(list[Document]):
        knowledge = (Fact("recalled"),)

    ctx = PromptContext(user_input="hi", knowledge=[Fact("given")])
    result = Agent(ScriptedModel(["ok"]), LAYERS, memory=Knowing()).run_sync(ctx)
    assert [fact.text for fact in result.composition.context.knowledge] == ["given", "recalled"]


def test_a_custom_recaller_gets_the_session_only_if_it_has_a_parameter_for_it() -> None:
    session = InMemorySession()

    class Curious:
        def recall(self, query: str, *, session: object = None, visible: int | None = None) -> list[Document]:
            return [Document(f"{query} {session is not None} {visible}")]

    assert recall(Library("a"), "hi", session) == Found((Document("a", id="d0"),))
    assert recall(Curious(), "hi", session, 3).documents == (Document("hi True 3"),)
    assert recall(Curious(), "hi").documents == (Document("hi False None"),)


def test_facts_that_are_none() -> None:
    class Wrong(list[Document]):
        knowledge = ("text",)

    class Knowing:
        def recall(self, query: str) -> Wrong:
            return Wrong()

    with pytest.raises(TypeError, match=r"Knowing.recall: expected Facts, got str"):
        recall(Knowing(), "hi")
