"""Agents with changes, for one call or for a block, and runs from code that is not async."""

from __future__ import annotations

import gc
import threading
import weakref
from contextvars import copy_context
from typing import Any

import pytest

from agentkit import (
    Agent,
    Chain,
    Document,
    Layers,
    LimitExceeded,
    Limits,
    Message,
    PromptContext,
    RecallOptions,
    RunFinished,
    ScriptedModel,
    Session,
    Summarise,
    TextDelta,
    Trim,
    tool,
)
from agentkit.errors import AgentDefinitionError
from agentkit.tools import ToolDefinitionError
from tests.raising import raises
from tests.runtime.scripts import Library, calling


@tool
def look() -> str:
    """Look."""
    return "seen"


def test_an_agent_with_changes_keeps_the_rest() -> None:
    agent = Agent(ScriptedModel(["first"]), "One.", tools=[look], name="named")
    other = agent.with_changes(
        model=ScriptedModel([calling("look"), "second"]), instructions="Two.", limits=Limits(steps=2)
    )
    assert (other.run_sync("x").output, agent.run_sync("x").output) == ("second", "first")
    assert (other.name, [*other.tools], agent.with_changes(tools=[]).tools) == ("named", ["look"], {})
    assert agent.with_changes(model=ScriptedModel(["3"]), output=int).run_sync("x").output == 3
    with raises(TypeError, name="modle", meant={"modle": "model"}):
        agent.with_changes(modle=1)  # type: ignore[call-arg]


def test_an_override_inside_of_another_adds_its_changes() -> None:
    agent = Agent(ScriptedModel(["real"]), "One.")
    with agent.override(model=ScriptedModel.repeat("fake")):
        with agent.override(instructions="Two."), agent.override(limits=Limits(steps=1)):
            result = agent.run_sync("x")
            assert (result.output, result.composition.system.text) == ("fake", "Two.")
        result = agent.run_sync("x")
        assert (result.output, result.composition.system.text) == ("fake", "One.")
    assert agent.run_sync("x").output == "real"


def test_an_overridden_agent_lives_as_long_as_its_override_so_that_no_other_agent_gets_its_id() -> None:
    class Watched(Agent[None, str]):
        __slots__ = ("__weakref__",)

    agent = Watched(ScriptedModel(["real"]))
    seen = weakref.ref(agent)
    with agent.override(model=ScriptedModel.repeat("fake")):
        context = copy_context()  # like the context of a task that outlives the block
    del agent
    gc.collect()
    assert seen() is not None and context.run(seen().run_sync, "x").output == "fake"  # type: ignore[union-attr]
    del context
    gc.collect()
    assert seen() is None


def test_an_override_applies_in_its_block_to_inner_runs_too() -> None:
    agent = Agent(ScriptedModel.repeat("real"), "x")
    outer = Agent(
        ScriptedModel.repeat(calling(("ask", {"input": "?"})), "done"),
        tools=[agent.as_tool(name="ask", description="Asks.")],
    )
    with agent.override(model=ScriptedModel.repeat("fake")):
        assert agent.run_sync("x").output == "fake"
        assert outer.run_sync("x").messages[2].text == "fake"
    assert agent.run_sync("x").output == "real"


def test_a_stream_is_read_from_code_that_is_not_async() -> None:
    agent = Agent(ScriptedModel.repeat("one two three"))
    events = list(agent.stream_sync("go"))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "one two three"
    assert isinstance(events[-1], RunFinished)
    with pytest.raises(LimitExceeded):
        list(Agent(ScriptedModel.repeat(calling("look")), tools=[look], limits=Limits(steps=1)).stream_sync("go"))


def test_a_stream_that_is_closed_early_ends_its_run_and_the_run_waits_for_its_reader() -> None:
    before = threading.active_count()
    heard: list[Any] = []
    agent = Agent(ScriptedModel.repeat(*["word " * 500]))
    stream = agent.stream_sync("go", on_event=heard.append)
    next(stream)
    stream.close()
    assert 1 <= len(heard) < 500
    assert threading.active_count() <= before


def test_a_stream_passes_events_on_to_another_listener_too() -> None:
    heard: list[Any] = []
    events = list(Agent(ScriptedModel(["one two"])).stream_sync("go", on_event=heard.append))
    assert heard == events != []


def test_a_text_instead_of_layers_shows_the_recalled_documents() -> None:
    agent = Agent(ScriptedModel([]), "One.", memory=Library("The sky is green."))
    assert "The sky is green." in agent.with_changes(instructions="Two.").compose("sky?").to_text()


def test_an_override_applies_to_compose_and_resume() -> None:
    agent = Agent(ScriptedModel([OSError("gone")]), "One.")
    with raises(OSError, args=("gone",)) as failed:
        agent.run_sync("go")
    with agent.override(model=ScriptedModel(["done"]), instructions="Two."):
        assert agent.compose("go").system.text == "Two."
        assert agent.resume_sync(failed.value.journal).output == "done"  # type: ignore[attr-defined]
    assert agent.compose("go").system.text == "One."


def test_a_chain_runs_from_code_that_is_not_async() -> None:
    assert Chain(ScriptedModel(["yes"]), "Say yes.").run_sync(PromptContext(user_input="?")) == "yes"


def test_one_run_can_replace_model_layers_tools_output_and_limits() -> None:
    agent = Agent(ScriptedModel(["first", "last"]), "One.")
    changed = agent.run_sync(
        "x",
        model=ScriptedModel([calling("look"), "3"]),
        instructions="Two.",
        tools=[look],
        output=int,
        limits=Limits(steps=2),
    )
    assert (changed.output, changed.composition.system.text, changed.steps) == (3, "Two.", 2)
    assert [*agent.stream_sync("x", instructions="Three.")][-1].result.composition.system.text == "Three."  # type: ignore[union-attr]
    assert agent.compose("x").system.text == "One."
    with raises(TypeError, name="limit", meant={"limit": "limits"}):
        agent.run_sync("x", limit=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"limits": {"steps": 3}}, AgentDefinitionError),
        ({"limits": None}, AgentDefinitionError),
        ({"model": None}, AgentDefinitionError),
        ({"tools": None}, ToolDefinitionError),
        ({"tools": look}, ToolDefinitionError),
    ],
)
def test_an_option_of_another_type_is_refused_by_the_constructor_and_by_the_run(
    given: Any, kind: type[Exception]
) -> None:
    at_fault = {"name": next(iter(given))} if kind is AgentDefinitionError else {}
    with raises(kind, **at_fault):
        Agent(**{"model": ScriptedModel([]), **given})
    with raises(kind, **at_fault):
        Agent(ScriptedModel([])).run_sync("go", **given)
    with raises(AgentDefinitionError, name="steps"):
        Limits(steps="3")  # type: ignore[arg-type]


def test_memory_and_compaction_can_be_replaced_in_a_block_or_for_one_run() -> None:
    def library(*texts: str) -> Any:
        return lambda query: [Document(text, source="x") for text in texts]

    model = ScriptedModel.repeat("x")
    plain = Agent(model, "Be brief.")
    reading = plain.with_changes(memory=library("It opens at noon."))
    assert "noon" in reading.compose("when?").user.text and "noon" not in plain.compose("when?").user.text
    assert "noon" not in reading.with_changes(memory=None).compose("when?").user.text
    assert reading.with_changes(memory=None).compose("when?").messages == plain.compose("when?").messages
    assert "nine" in reading.with_changes(memory=library("It opens at nine.")).compose("when?").user.text
    assert "noon" in reading.with_changes(instructions="Be kind.").compose("when?").user.text
    with plain.override(memory=library("It opens at ten.")):
        assert "ten" in plain.run_sync("when?").composition.user.text
    assert "ten" in plain.run_sync("when?", memory=library("It opens at ten.")).composition.user.text
    assert "ten" not in plain.run_sync("when?").composition.user.text

    session = Session()
    session.append(Message("user", "word " * 99), Message("assistant", "word " * 99))
    notes = Summarise(ScriptedModel(["They said word."]), tokens=20, keep=0)
    shown = plain.run_sync("and?", session=session, compaction=notes).composition
    assert "They said word." in shown.user.text and len(shown.messages) == 2
    assert len(plain.compose("and?", session=session).messages) == 6
    trimmed = plain.with_changes(compaction=notes).with_changes(compaction=Trim(tokens=20, keep=0))
    assert "They said" not in trimmed.run_sync("and?", session=session).composition.user.text


def test_a_memory_without_a_prompt_and_options_without_a_memory_are_refused() -> None:
    model = ScriptedModel.repeat("x")
    placed = Agent(model, layers=Layers("Be brief."))
    with raises(AgentDefinitionError, name="layers"):
        placed.with_changes(memory=lambda query: [])
    with raises(AgentDefinitionError, name="layers", value="summary"):
        placed.with_changes(compaction=Summarise(model, tokens=9))
    with raises(AgentDefinitionError, name="recall"):
        placed.with_changes(recall=RecallOptions(limit=3))
    with raises(AgentDefinitionError, name="memory", value="str"):
        placed.run_sync("x", memory="folder")  # type: ignore[arg-type]
    limited = Agent(model, "x", memory=lambda query: [], recall=RecallOptions(roles=("assistant",)))
    assert limited.with_changes(memory=None).memory is None
    assert limited.with_changes(memory=lambda query: []).definition.recall == limited.definition.recall
