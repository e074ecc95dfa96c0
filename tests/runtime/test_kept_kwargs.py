"""Additional kwargs that a session keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Journal, ScriptedModel, Session
from agentkit.memory import Memory
from agentkit.prompts import (
    AdditionalInfoPrompt,
    ContextError,
    KwargsError,
    Layers,
    Message,
    PromptContext,
    TextPrompt,
    UserInput,
)

LAYERS = Layers(before_input=[AdditionalInfoPrompt("In {{ root }}."), TextPrompt("Mode {{ additional_kwargs.mode }}.")])


@pytest.fixture(params=["in memory", "stored"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "in memory":
        yield Session("talk")
    else:
        with Memory(tmp_path) as memory:
            yield memory.session("talk")


def agent(*script: str, layers: Layers = LAYERS) -> Agent[Any, Any]:
    return Agent(ScriptedModel(list(script)), layers=layers)


def test_kept_kwargs_apply_to_every_input_without_other_values(session: Any) -> None:
    session.keep_kwargs({"root": Path("/srv"), "mode": "fast"})
    first = agent("ok").run_sync("a", session=session)
    assert first.composition.user.text == "In /srv.\n\nMode fast.\n\na"
    asked = UserInput("b", {"mode": "slow"})
    second = agent("ok").run_sync(asked, session=session)
    assert second.composition.user.text.startswith("In /srv.\n\nMode slow.")
    third = agent("ok").run_sync(PromptContext(user_input="c"), session=session)
    assert third.composition.user.text.startswith("In /srv.\n\nMode fast.")
    assert first.composition.context.kept_kwargs == ("root", "mode") and second.composition.context.kept_kwargs == (
        "root",
    )
    assert Journal.loads(first.journal.dumps()).context.kept_kwargs == ("root", "mode")


def test_the_layer_table_names_the_kwargs_that_the_session_keeps(session: Any) -> None:
    session.keep_kwargs({"root": "/srv", "mode": "fast"})
    rows = {
        row.layer: row.source for row in agent().compose(UserInput("b", {"mode": "slow"}), session=session).explain()
    }
    assert rows["before_input[0]"] == "root (root: kept by the session)"
    assert rows["before_input[1]"] == "additional_kwargs"
    whole = Layers(before_input=AdditionalInfoPrompt())
    (row, *_) = agent(layers=whole).compose("b", session=session).explain()
    assert row.source.endswith("(root, mode: kept by the session)")
    assert "untrusted" in agent().compose("b", session=session).why("additional_kwargs.root").reason


def test_without_kept_kwargs_the_input_is_refused_and_they_can_be_changed_and_removed(session: Any) -> None:
    for kwargs in ({"root": "/a", "mode": "x"}, {"root": "/b", "mode": "x"}):
        session.keep_kwargs(kwargs)
        assert agent().compose("x", session=session).user.text.startswith(f"In {kwargs['root']}.")
    session.keep_kwargs({})
    with pytest.raises(KwargsError) as caught:
        agent("never").run_sync("x", session=session)
    assert list(caught.value.problems) == ["root", "mode"]
    assert len(session.conversation) == 0


def test_a_run_that_continues_without_input_has_the_kept_kwargs(session: Any) -> None:
    session.keep_kwargs({"root": "/srv", "mode": "fast"})
    agent("one").run_sync("a", session=session)
    session.edit(1, "b")
    assert "In /srv." in agent("two").run_sync(None, session=session).composition.user.text


def test_a_fork_has_the_kept_kwargs_and_a_rewind_restores_earlier_values(session: Any) -> None:
    session.keep_kwargs({"root": "/old", "mode": "x"})
    agent("one").run_sync("a", session=session)
    session.keep_kwargs({"root": "/new", "mode": "x"})
    fork = session.fork(id="f")
    session.rewind(1)
    assert (fork.additional_kwargs["root"], session.additional_kwargs["root"]) == ("/new", "/old")


def test_kept_kwargs_are_stored(tmp_path: Path) -> None:
    kept = {"root": Path("/srv"), "depth": 2}
    with Memory(tmp_path) as memory:
        memory.session("talk").keep_kwargs(kept)
    with Memory(tmp_path) as memory:
        assert memory.session("talk").additional_kwargs == kept
        assert memory.session("other").additional_kwargs == {}


@pytest.mark.parametrize("kwargs", ["root", 5, None, [("a", 1)], {1: 2}])
def test_kept_kwargs_must_be_a_mapping_of_names(session: Any, kwargs: Any) -> None:
    with pytest.raises(ContextError):
        session.keep_kwargs(kwargs)
    assert session.additional_kwargs == {}


def test_kept_kwargs_survive_forks_of_forks_and_are_restored_by_each_rewind(session: Any) -> None:
    session.keep_kwargs({"at": 0})
    for number in range(1, 4):
        session.append(Message("user", str(number)))
        session.keep_kwargs({"at": number})
    one = session.fork(id="one", at=3)
    two = one.fork(id="two", at=3)
    two.keep_kwargs({"at": "two"})
    three = two.fork(id="three")
    assert [each.additional_kwargs["at"] for each in (session, one, two, three)] == [3, 3, "two", "two"]
    for each in (three, session):
        each.rewind(2)
        assert each.additional_kwargs == {"at": 2}
        each.rewind(0)
        assert each.additional_kwargs == {"at": 0}
    assert two.additional_kwargs == {"at": "two"}
