"""Sessions that are forked, rewound and edited: histories stay valid, and stored messages stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import Agent, ModelError, ScriptedModel, Session, tool
from agentkit.errors import JournalError
from agentkit.memory import HeadMoved, Memory, NotFound, Scope
from agentkit.prompts import Conversation, Message, MessageError
from agentkit.testing.strategies import conversations
from tests.prompts.laws import law
from tests.raising import raises
from tests.runtime.scripts import calling


@tool
def look() -> str:
    """Look."""
    return "seen"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "store", scope=Scope("acme", user="ada")) as opened:
        yield opened


@pytest.fixture(params=["in memory", "stored"])
def session(request: pytest.FixtureRequest, memory: Memory) -> Any:
    return Session("talk") if request.param == "in memory" else memory.session("talk")


def texts(session: Any) -> list[str]:
    return [f"{message.role[0]}:{message.text}" for message in session.conversation]


def agent(*script: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel(list(script)), "Answer.", tools=[look])


def talked(session: Any) -> None:
    """Create the messages: user, call, result, answer, user, answer."""
    agent(calling("look"), "one").run_sync("first", session=session)
    agent("two").run_sync("second", session=session)


def test_a_rewound_session_continues_after_the_message_and_the_model_receives_no_later_one(session: Any) -> None:
    talked(session)
    assert [*session.rewind(4)] == [*session.conversation]
    assert texts(session) == ["u:first", "a:", "t:seen", "a:one"]
    result = agent("three").run_sync("third", session=session)
    assert texts(session)[4:] == ["u:third", "a:three"]
    assert "second" not in str(result.composition.messages)


def test_a_rewind_does_not_separate_a_result_from_its_call(session: Any) -> None:
    talked(session)
    before = texts(session)
    with pytest.raises(MessageError):
        session.rewind(2)
    with pytest.raises(MessageError):
        session.edit(3, "x")
    assert texts(session) == before


@pytest.mark.parametrize("at", [-1, 7, 2.0, True, "1", None])
def test_an_invalid_number_is_refused_and_changes_nothing(session: Any, at: Any) -> None:
    talked(session)
    for act in (session.rewind, lambda number: session.edit(number, "x")):
        with pytest.raises(MessageError):
            act(at)
    assert len(session.conversation) == 6


def test_an_edited_message_gets_a_new_answer(session: Any) -> None:
    talked(session)
    session.edit(5, "another second")
    assert texts(session)[3:] == ["a:one", "u:another second"]
    result = agent("anew").run_sync(None, session=session)
    assert result.output == "anew" and texts(session)[4:] == ["u:another second", "a:anew"]
    with pytest.raises(MessageError):
        session.edit(1, [5])
    assert texts(session)[0] == "u:first"


def test_a_fork_does_not_change_the_session(session: Any) -> None:
    talked(session)
    fork = session.fork(id="other", at=4)
    agent("elsewhere").run_sync("third", session=fork)
    assert texts(fork)[4:] == ["u:third", "a:elsewhere"]
    assert texts(session)[4:] == ["u:second", "a:two"]


def test_a_run_id_of_rewound_messages_starts_a_new_run(session: Any) -> None:
    agent("one").run_sync("first", session=session, run_id="r")
    agent("two").run_sync("second", session=session, run_id="s")
    session.rewind(2)
    result = agent("other").run_sync("else", session=session, run_id="s")
    assert result.output == "other" and texts(session) == ["u:first", "a:one", "u:else", "a:other"]
    again = agent("never").run_sync("first", session=session, run_id="r")
    assert again.output == "one" and len(session.conversation) == 4


def test_a_journal_of_rewound_messages_cannot_be_resumed(session: Any) -> None:
    agent("one").run_sync("first", session=session)
    model = ScriptedModel([calling("look"), calling("look"), ModelError("gone"), "two"])
    with pytest.raises(ModelError) as failed:
        Agent(model, tools=[look]).run_sync("second", session=session)
    journal = failed.value.journal  # type: ignore[attr-defined]
    fork = session.fork(id=session.id, at=5)
    for cut, at in ((session, 2), (fork, 5)):
        cut.rewind(at)
        with raises(JournalError, name="conversation"):
            Agent(model, tools=[look]).resume_sync(journal, session=cut)
        assert len(cut.conversation) == at


def test_rewound_messages_stay_stored_and_can_be_opened(memory: Memory) -> None:
    session = memory.session("talk")
    talked(session)
    whole = texts(session)
    late = session.fork("late", at=6)
    session.rewind(4)
    session.append(Message("user", "third"))
    session.rewind(1)
    assert [(each.name, each.parent, each.fork_seq, each.messages) for each in session.branches()] == [
        ("main~1", None, 0, 6),
        ("late", "main~1", 6, 6),
        ("main~2", "main~1", 4, 5),
        ("main", "main~2", 1, 1),
    ]
    assert texts(memory.session("talk", branch="main~1")) == whole == texts(late)
    assert texts(memory.session("talk")) == ["u:first"] == texts(session)
    assert session.scope == memory.session("talk").scope == Scope("acme", user="ada")


def test_a_session_with_the_old_end_raises_head_moved_and_continues_after_the_new_end(
    memory: Memory, tmp_path: Path
) -> None:
    mine = memory.session("talk")
    talked(mine)
    with Memory(tmp_path / "store", scope=Scope("acme", user="ada")) as other_process:
        theirs = other_process.session("talk")
        other_fork = other_process.session("talk").fork("f")
        mine.rewind(4)
        with pytest.raises(HeadMoved) as caught:
            theirs.append(Message("user", "late"))
        assert caught.value.rewound and texts(theirs) == texts(mine)
        theirs.append(Message("user", "late"))
        with pytest.raises(HeadMoved) as added:
            mine.rewind(1)
        assert not added.value.rewound and texts(mine)[-1] == "u:late"
        other_fork.append(Message("user", "on the fork"))
        assert texts(memory.session("talk")) == texts(theirs) == texts(mine)


def test_a_run_whose_conversation_is_rewound_meanwhile_ends_and_adds_nothing(memory: Memory) -> None:
    session = memory.session("talk")
    talked(session)

    @tool
    def undo() -> str:
        """Rewind."""
        memory.session("talk").rewind(4)
        return "done"

    with pytest.raises(HeadMoved) as caught:
        Agent(ScriptedModel([calling("undo"), "never"]), tools=[undo]).run_sync("third", session=session)
    assert [message.role for message in caught.value.messages] == ["user", "assistant", "tool"]  # type: ignore[attr-defined]
    assert texts(session) == texts(memory.session("talk")) == ["u:first", "a:", "t:seen", "a:one"]


def test_rewound_messages_are_not_recalled_and_other_messages_are(memory: Memory) -> None:
    session = memory.session("talk")
    session.append(Message("user", "Herons nest behind the weir."), Message("assistant", "I see."))
    session.append(Message("user", "Herons earn five."))
    assert len(memory.recall("herons").recalled) == 2
    session.edit(3, "Herons earn six.")
    found = {message.text for message in memory.recall("herons").recalled}
    assert found == {"Herons nest behind the weir.", "Herons earn six."}
    session.rewind(2)
    session.append(Message("user", "Herons earn seven."))
    found = {message.text for message in memory.recall("herons").recalled}
    assert found == {"Herons nest behind the weir.", "Herons earn seven."}
    assert memory.admin.verify().ok and memory.admin.repair().after.ok


def test_messages_that_were_not_yet_indexed_are_recalled_after_a_rewind_too(memory: Memory) -> None:
    session = memory.session("talk")
    session.append(Message("user", "Herons nest behind the weir."), Message("user", "Herons earn five."))
    session.rewind(1)
    assert [message.text for message in memory.recall("herons").recalled] == ["Herons nest behind the weir."]


def test_a_deleted_conversation_cannot_be_rewound(memory: Memory) -> None:
    session = memory.session("talk")
    talked(session)
    memory.delete_session("talk")
    with pytest.raises(NotFound):
        session.rewind(4)


@given(conversations(with_media=False), st.data())
@law
def test_a_rewound_conversation_has_no_orphans(conversation: Conversation, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(conversation)))
    act: Callable[[], Conversation] = lambda: Session(conversation=conversation).rewind(at)  # noqa: E731
    if at < len(conversation) and conversation[at].role == "tool":
        with pytest.raises(MessageError):
            act()
    else:
        kept = act()
        assert kept.complete() is kept and [*kept] == [*conversation][:at]
