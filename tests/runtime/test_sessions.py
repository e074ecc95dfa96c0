"""Sessions: messages that are stored between runs, and messages that are not stored after a failure."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Document, Layers, Message, ModelError, ScriptedModel, Session, SessionProtocol, UserInput
from agentkit.errors import SessionBusy
from agentkit.memory import AlreadyUsed, HeadMoved, InvalidArgument, Memory
from agentkit.prompts import KwargsError, TemplateError, TextPrompt
from tests.raising import raises
from tests.runtime.scripts import Forgetful, Never, Slow, calling, roles, valid

OpenSession = Callable[[str], SessionProtocol]


@pytest.fixture(params=["in memory", "SQLite"])
def open_session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenSession]:
    """Opens a session by its id; every test runs with both kinds."""
    if request.param == "in memory":
        yield lambda name: Session(name)
    else:
        with Memory(tmp_path) as memory:
            yield memory.session


async def echo(text: str) -> str:
    """Repeat the text."""
    return text


def test_a_session_remembers_its_messages(open_session: OpenSession) -> None:
    session = open_session("s")
    model = ScriptedModel(["Hello Ann.", "Ann."])
    agent = Agent(model, "Be brief.")
    agent.run_sync("I am Ann.", session=session)
    agent.run_sync("Who am I?", session=session)
    assert [message.text for message in model.requests[1].messages] == [
        "Be brief.",
        "I am Ann.",
        "Hello Ann.",
        "Who am I?",
    ]
    assert roles(session.conversation) == "user assistant user assistant"


def test_calls_and_results_of_tools_are_remembered_too(open_session: OpenSession) -> None:
    session = open_session("s")
    agent = Agent(ScriptedModel.repeat(calling(("echo", {"text": "x"})), "ok"), tools=[echo])
    for turn in range(3):
        result = agent.run_sync(f"turn {turn}", session=session)
        assert tuple(session.conversation)[-4:] == result.messages
    assert len(session.conversation) == 12
    assert valid(session.conversation)


def test_sessions_are_separate(open_session: OpenSession) -> None:
    one, other = open_session("one"), open_session("other")
    model = ScriptedModel.repeat("ok")
    agent = Agent(model)
    agent.run_sync("secret", session=one)
    agent.run_sync("hi", session=other)
    assert len(model.requests[1].messages) == 1
    assert (one.id, other.id) == ("one", "other")


def test_without_a_session_no_message_is_remembered() -> None:
    model = ScriptedModel.repeat("ok")
    agent = Agent(model)
    agent.run_sync("one")
    agent.run_sync("two")
    assert [message.text for message in model.requests[1].messages] == ["two"]


def test_a_stored_session_continues_after_its_last_message(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        agent = Agent(ScriptedModel([calling(("echo", {"text": "x"})), "ok"]), tools=[echo])
        before = agent.run_sync("first", session=memory.session("s")).messages
    model = ScriptedModel(["still here"])
    with Memory(tmp_path) as memory:
        session = memory.session("s")
        assert tuple(session.conversation) == before
        Agent(model).run_sync("second", session=session)
        assert roles(session.conversation) == "user assistant tool assistant user assistant"
    assert [message.text for message in model.requests[0].messages] == ["first", "", "x", "ok", "second"]


async def test_a_stored_session_works_in_an_event_loop(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        session = memory.session("s")
        await Agent(ScriptedModel(["ok"])).run("hi", session=session)
        assert roles(session.conversation) == "user assistant"


def test_a_prompt_that_cannot_render_sends_and_stores_nothing(open_session: OpenSession) -> None:
    session, model = open_session("s"), ScriptedModel(["never"])
    agent = Agent(model, layers=Layers(before_input=TextPrompt("{{ 1 / (user_input.text | length) }}")))
    with pytest.raises(TemplateError):
        agent.run_sync("", session=session)
    assert len(session.conversation) == 0
    assert not model.requests


def test_missing_kwargs_are_all_named_before_any_request_recall_or_write(open_session: OpenSession) -> None:
    session, model = open_session("s"), ScriptedModel(["never"])
    layers = Layers(
        before_input=TextPrompt("{{ additional_kwargs.tone }}"), after_input=TextPrompt("{{ additional_kwargs.lang }}")
    )
    with pytest.raises(KwargsError) as caught:
        Agent(model, layers=layers).run_sync(UserInput("hi", additional_kwargs={"other": 1}), session=session)
    assert {name: paths for name, (_, paths) in caught.value.problems.items()} == {
        "tone": ("before_input[0]",),
        "lang": ("after_input[0]",),
    }
    assert len(session.conversation) == 0
    assert not model.requests


def test_a_memory_that_fails_or_returns_an_invalid_value_sends_and_stores_nothing(open_session: OpenSession) -> None:
    class Broken:
        def recall(self, query: str) -> list[Document]:
            raise InvalidArgument("no index")

    class Wrong:
        def recall(self, query: str) -> list[Document]:
            return ["a chunk"]  # type: ignore[list-item]

    session, model = open_session("s"), ScriptedModel(["never"])
    with raises(InvalidArgument, args=("no index",)):
        Agent(model, memory=Broken()).run_sync("hi", session=session)
    with pytest.raises(TypeError):
        Agent(model, memory=Wrong()).run_sync("hi", session=session)
    with pytest.raises(TypeError):
        Agent(model, memory=Wrong()).compose("hi")
    assert len(session.conversation) == 0
    assert not model.requests


def test_no_request_is_sent_if_the_input_cannot_be_stored() -> None:
    session, model = Forgetful(good=0), ScriptedModel(["never"])
    with raises(OSError, args=("the disk is gone",)):
        Agent(model).run_sync("hi", session=session)
    assert not model.requests
    assert len(session.conversation) == 0


def test_a_store_that_fails_later_leaves_a_valid_history() -> None:
    session = Forgetful(good=1)
    with raises(OSError, args=("the disk is gone",)):
        Agent(ScriptedModel([calling(("echo", {"text": "x"})), "ok"]), tools=[echo]).run_sync("hi", session=session)
    assert roles(session.conversation) == "user"
    session.good = 9
    Agent(ScriptedModel(["ok"])).run_sync("again", session=session)
    assert valid(session.conversation)


async def test_two_simultaneous_runs_on_one_session_are_refused(open_session: OpenSession) -> None:
    session, model = open_session("s"), Never()
    first = asyncio.create_task(Agent(model).run("one", session=session))
    await model.asked.wait()
    with raises(SessionBusy, session="s") as caught:
        await Agent(ScriptedModel(["never"])).run("two", session=session)
    assert caught.value.session == "s"
    first.cancel()
    await asyncio.wait([first])
    assert roles(session.conversation) == "user"
    await Agent(ScriptedModel(["ok"])).run("three", session=session)
    assert roles(session.conversation) == "user user assistant"


async def test_the_same_run_id_does_not_permit_two_simultaneous_runs() -> None:
    session, model = Session(), Never()
    first = asyncio.create_task(Agent(model).run("one", session=session, run_id="same"))
    await model.asked.wait()
    with pytest.raises(SessionBusy):
        await Agent(model).run("two", session=session, run_id="same")
    first.cancel()
    await asyncio.wait([first])


def test_of_many_threads_one_at_a_time_uses_a_session(open_session: OpenSession) -> None:
    session = open_session("s")
    begin = threading.Barrier(8)
    refused: list[SessionBusy] = []
    agent = Agent(ScriptedModel.repeat(calling(("echo", {"text": "x"})), "ok"), tools=[echo])

    def talk() -> None:
        begin.wait()
        for _ in range(20):
            try:
                agent.run_sync("hi", session=session)
            except SessionBusy as busy:
                refused.append(busy)
            except ModelError:
                raise AssertionError from None

    threads = [threading.Thread(target=talk) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert valid(session.conversation)
    assert sum(message.role == "user" for message in session.conversation) == 160 - len(refused)


def test_a_session_is_free_again_after_a_failed_run(open_session: OpenSession) -> None:
    session = open_session("s")
    agent = Agent(ScriptedModel([ModelError("no"), "yes"]))
    with pytest.raises(ModelError):
        agent.run_sync("one", session=session)
    assert agent.run_sync("two", session=session).output == "yes"


async def test_a_second_writer_on_a_stored_conversation_gets_an_error(tmp_path: Path) -> None:
    """Two session objects on one conversation, as in two processes: the session with the old state gets an error."""
    with Memory(tmp_path) as memory:
        one, other = memory.session("s"), memory.session("s")
        await Agent(ScriptedModel(["ok"])).run("first", session=one)
        with pytest.raises(HeadMoved):
            await Agent(ScriptedModel(["never"])).run("second", session=other)
        await Agent(ScriptedModel(["ok"])).run("third", session=other)
        assert valid(other.conversation)
        assert [message.text for message in other.conversation] == ["first", "ok", "third", "ok"]


async def test_a_run_cancelled_during_a_write_releases_the_session_after_the_write() -> None:
    session = Slow()
    run = asyncio.create_task(Agent(ScriptedModel(["never"])).run("hi", session=session))
    await asyncio.to_thread(session.writing.wait)
    run.cancel()
    await asyncio.sleep(0.01)
    assert not run.done()
    with pytest.raises(SessionBusy):
        await Agent(ScriptedModel(["never"])).run("two", session=session)
    session.go.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert roles(session.conversation) == "user"


def test_an_append_with_the_key_of_the_last_append_adds_nothing(open_session: OpenSession) -> None:
    session = open_session("s")
    message = Message("user", "once")
    for _ in range(2):
        assert len(session.append(message, key="r:0")) == 1
    assert len(session.append(message, key="r:1")) == 2
    assert len(session.append(message)) == 3
    assert len(session.append(message)) == 4


def test_a_session_may_start_with_a_conversation() -> None:
    model = ScriptedModel(["ok"])
    known = Session()
    known.append(Message("user", "old"), Message("assistant", "times"))
    fork = Session("fork", known.conversation)
    Agent(model).run_sync("new", session=fork)
    assert len(model.requests[0].messages) == 3
    assert len(known.conversation) == 2


def test_long_sessions_stay_complete(open_session: OpenSession) -> None:
    session = open_session("s")
    agent = Agent(ScriptedModel.repeat(lambda sent: f"You said {sent.context.user_input.text}."))
    for turn in range(50):
        agent.run_sync(str(turn), session=session)
    texts = [message.text for message in session.conversation]
    assert texts == [text for turn in range(50) for text in (str(turn), f"You said {turn}.")]


def test_a_turn_of_run_sync_does_the_same_work_for_any_length_of_the_session(open_session: OpenSession) -> None:
    session = open_session("s")
    agent = Agent(ScriptedModel.repeat("Noted.", keep=1), "Be brief.")

    def work(turns: int) -> int:
        """Return the minimum number of function calls of a turn, in C too."""
        counts = []
        for _ in range(turns):
            calls = Counter[str]()
            sys.setprofile(lambda frame, event, arg, calls=calls: calls.update([event]))
            try:
                agent.run_sync("Note this.", session=session)
            finally:
                sys.setprofile(None)
            counts.append(calls["call"] + calls["c_call"])
        return min(counts)

    early = work(10)
    for _ in range(150):
        agent.run_sync("Note this.", session=session)
    assert work(10) < early + 20


@pytest.mark.parametrize("stored", [False, True])
def test_a_key_that_was_used_for_other_messages_is_refused(stored: bool, tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        session: Any = memory.session("s") if stored else Session("s")
        first = Message("user", "one"), Message("assistant", "two")
        session.append(*first, key="k")
        session.append(Message("user", "three"))
        assert len(session.append(*first, key="k")) == 3 and len(session.append(first[0], key="k")) == 3
        for other in ([Message("user", "other")], [*first, Message("user", "four")], [first[1]]):
            with pytest.raises(AlreadyUsed):
                session.append(*other, key="k")
            if not stored:
                with pytest.raises(AlreadyUsed):
                    session.append_now(*other, key="k")
        assert [message.text for message in session.conversation] == ["one", "two", "three"]
        fork = session.fork(id="f", at=1)
        with pytest.raises(AlreadyUsed):
            fork.append(*first, key="k")
        session.rewind(0)
        session.append(Message("user", "other"), key="k")
        assert len(session.append(key="never")) == 1 and session.position("never") is None


@pytest.mark.parametrize("stored", [False, True])
def test_a_fork_has_the_keys_of_its_messages_and_a_rewind_removes_keys(stored: bool, tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        session: Any = memory.session("s") if stored else Session("s")
        session.append(Message("user", "one"), Message("assistant", "two"), key="a")
        session.append(Message("user", "three"))
        session.append(Message("assistant", "four"), key="b")
        assert dict(session.keys(0, 4)) == {0: "a", 3: "b"}
        assert dict(session.keys(1, 3)) == {} and dict(session.keys(3, 99)) == {3: "b"}
        fork = session.fork(id="f", at=2)
        fork.append(Message("user", "five"), key="c")
        assert dict(fork.keys(0, 99)) == {0: "a", 2: "c"} and dict(session.keys(0, 99)) == {0: "a", 3: "b"}
        session.rewind(3)
        assert dict(session.keys(0, 99)) == {0: "a"}
