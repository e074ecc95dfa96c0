"""The user of the memory of a run, the query of the recall, and options that are refused as ineffective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentkit import (
    Agent,
    AgentError,
    Chain,
    Document,
    Journal,
    OpenAIModel,
    Paused,
    RecallOptions,
    ScriptedModel,
    Session,
    tool,
)
from agentkit.errors import AgentDefinitionError, ScopeMismatch
from agentkit.memory import Memory, Scope
from agentkit.prompts import Layers, MemoPrompt
from tests.raising import raises
from tests.runtime.scripts import Library, calling

ADA, BOB = Scope("acme", user="ada"), Scope("acme", user="bob")


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory(tmp_path / "store", scope="acme") as opened:
        for scope, text in (
            (Scope("acme"), "The office opens at nine."),
            (ADA, "Ada earns five."),
            (BOB, "Bob owes six."),
        ):
            (tmp_path / "note.md").write_text(text)
            opened.within(scope).ingest([tmp_path / "note.md"])
        yield opened


def sent(agent: Agent[Any, Any], **options: Any) -> str:
    return str(agent.run_sync("Who earns, owes, opens?", **options).composition.messages)


def test_one_agent_serves_all_users_with_the_memory_of_their_sessions(memory: Memory) -> None:
    agent = Agent(ScriptedModel.repeat("ok"), memory=memory)
    ada = sent(agent, session=memory.within(ADA).session("a"))
    bob = sent(agent, session=memory.within(BOB).session("b"))
    assert "Ada earns five" in ada and "Bob owes" not in ada and "at nine" in ada
    assert "Bob owes six" in bob and "Ada earns" not in bob and "at nine" in bob


def test_without_a_session_scope_selects_the_memory(memory: Memory) -> None:
    agent = Agent(ScriptedModel.repeat("ok"), memory=memory)
    assert "Ada earns five" in sent(agent, scope=ADA)
    assert "Ada earns five" in str(agent.compose("Who earns?", scope=ADA).messages)
    shared = sent(agent)
    assert "Ada" not in shared and "Bob" not in shared and "at nine" in shared


def test_different_scopes_end_the_run_before_any_recall(memory: Memory) -> None:
    session = memory.within(BOB).session("b")
    agent = Agent(ScriptedModel(["never"]), memory=memory.within(ADA))
    for options in ({"session": session}, {"scope": BOB}, {"scope": Scope("other")}, {"scope": "acme"}):
        with pytest.raises(ScopeMismatch):
            agent.run_sync("Who earns?", **options)  # type: ignore[arg-type]
        with pytest.raises(ScopeMismatch):
            agent.compose("Who earns?", **options)  # type: ignore[arg-type]
    with raises(ScopeMismatch, name="session"):
        Agent(ScriptedModel(["never"]), memory=memory).run_sync("?", session=session, scope=ADA)
    assert len(session.conversation) == 0


def test_a_scope_that_the_memory_would_ignore_is_refused() -> None:
    with raises(AgentError, name="scope"):
        Agent(ScriptedModel(["never"]), memory=Library("a")).run_sync("?", scope="acme")


def test_a_resumed_run_reads_the_memory_of_its_start(memory: Memory) -> None:
    @tool(approval="always")
    def pay() -> str:
        """Pay."""
        return "paid"

    def agent() -> Agent[Any, Any]:
        return Agent(ScriptedModel([calling("pay"), "Done."]), memory=memory, tools=[pay])

    with pytest.raises(Paused) as paused:
        agent().run_sync("Who earns?", scope=ADA)
    lines = paused.value.journal.dumps().splitlines(keepends=True)
    begun = Journal.loads(lines[0])  # the process died before the recall
    result = agent().resume_sync(begun, approve=lambda call: True)
    assert "Ada earns five" in str(result.composition.messages)


def test_with_a_plain_text_as_prompt_recalled_documents_are_placed_and_shown() -> None:
    agent = Agent(ScriptedModel(["ok"]), "Answer.", memory=Library("The sky is blue."))
    composition = agent.compose("Which colour?")
    assert "The sky is blue." in str(composition.messages)
    assert "before_input[0]" in {row.layer for row in composition.explain()}


def test_memory_that_no_prompt_shows_is_refused() -> None:
    with raises(AgentDefinitionError, name="layers"):
        Agent(ScriptedModel([]), layers=Layers("Answer."), memory=Library("a"))
    with raises(AgentDefinitionError, name="layers"):
        Agent(Chain(ScriptedModel([]), "Answer."), memory=Library("a"))


@pytest.mark.parametrize("method", ["invoke", "get_relevant_documents"])
def test_a_retriever_of_another_framework_is_refused_with_the_function_to_write(method: str) -> None:
    retriever = type("Retriever", (), {method: lambda self, query: []})()
    with raises(AgentDefinitionError, name="memory", value="Retriever"):
        Agent(ScriptedModel([]), memory=retriever)
    with raises(AgentDefinitionError, name="memory", value="object"):
        Agent(ScriptedModel([]), memory=object())  # type: ignore[call-overload]


def test_a_plain_function_is_a_memory_and_receives_recall_options_if_it_has_parameters_for_them() -> None:
    asked: list[tuple[Any, ...]] = []

    def plain(query: str) -> Sequence[Document]:
        asked.append((query,))
        return [Document("found")]

    def choosy(query: str, *, limit: int = 5, policy: str = "") -> Sequence[Document]:
        asked.append((query, limit, policy))
        return [Document("found")]

    assert "found" in sent(Agent(ScriptedModel(["ok"]), memory=plain))
    Agent(ScriptedModel(["ok"]), memory=choosy, recall=RecallOptions(limit=2, policy="words")).run_sync("q")
    assert asked == [("Who earns, owes, opens?",), ("q", 2, "words")]
    with raises(AgentError, name="recall", value="limit"):
        Agent(ScriptedModel(["ok"]), memory=plain, recall=RecallOptions(limit=2)).run_sync("q")


def test_other_values_than_a_memory_a_session_or_a_model_are_refused_by_name() -> None:
    made: list[tuple[Callable[[], object], str, str | None]] = [
        (lambda: Agent(ScriptedModel([]), memory="notes"), "memory", "str"),  # type: ignore[call-overload]
        (lambda: Agent(ScriptedModel([]), recall=RecallOptions(limit=2)), "recall", None),
        (lambda: Agent("gpt-4o"), "model", "gpt-4o"),
        (lambda: Agent("opena:gpt-4o"), "provider", "opena"),
        (lambda: Agent("openai:"), "model", "openai:"),
        (lambda: Agent(ScriptedModel([])).run_sync("x", session="s"), "session", "str"),  # type: ignore[arg-type]
        (lambda: Agent(Chain(ScriptedModel([])), budget=5), "model", "Chain"),  # type: ignore[call-overload]
    ]
    for make, name, value in made:
        with raises(AgentDefinitionError, name=name, value=value):
            make()
    with raises(TypeError, name="sesion", meant={"sesion": "session"}):
        Agent(ScriptedModel(["x"])).run_sync("x", sesion=Session())  # type: ignore[call-arg]


def test_a_model_can_be_a_name_and_an_agent_can_have_a_budget() -> None:
    agent = Agent("openai:gpt-5-mini", layers=Layers("a", before_input=MemoPrompt()), budget=50)
    assert isinstance(agent.chain.model, OpenAIModel) and agent.chain.model.name == "gpt-5-mini"
    assert agent.chain.budget == 50


def test_an_async_memory_is_refused_with_the_alternative() -> None:
    async def library(query: str) -> list[Document]:
        return []

    with pytest.raises(TypeError):
        Agent(ScriptedModel([]), "A", memory=library).run_sync("x")  # type: ignore[arg-type]
