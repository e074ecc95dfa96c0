"""Messages to a run while it runs: each is received once, at its time, or refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentkit import (
    Agent,
    Journal,
    Limits,
    Paused,
    RunFinished,
    RunResult,
    ScriptedModel,
    Session,
    ToolCall,
    tool,
)
from agentkit.errors import AgentDefinitionError, GuardStopped, LimitExceeded, RunBusy, RunEnded
from agentkit.guards import Replace, Stop, guard
from agentkit.inbox import Inbox, MessageReceived, SentMessage
from agentkit.prompts import ContextError, Image, Text, Url
from agentkit.run.engine.replay import replayed_contexts
from tests.cases import collected
from tests.raising import raises
from tests.waiting import LONG

LOOK = ToolCall(name="look", arguments={"name": "a"})
Send = Callable[[], object]


def looking(replies: list[Any], on_call: Send = lambda: None, **options: Any) -> Agent[Any, Any]:
    @tool
    def look(name: str) -> str:
        """Look for a person."""
        on_call()
        return "there"

    return Agent(ScriptedModel(replies), "You look.", tools=[look], **options)


def texts(session: Session) -> list[str]:
    return [f"{message.role}: {message.text}" for message in session.conversation]


async def test_a_message_arrives_before_the_next_model_call_or_when_the_run_is_idle() -> None:
    inbox, session = Inbox(), Session()

    def send() -> None:
        inbox.send("And b?", by="ada")
        inbox.send("Thanks.", when="idle")

    agent = looking([LOOK, "Both.", "Bye."], send)
    events: list[Any] = []
    result = await agent.run("Is a there?", inbox=inbox, session=session, on_event=events.append)
    assert texts(session) == [
        *("user: Is a there?", "assistant: ", "tool: there", "user: And b?"),
        *("assistant: Both.", "user: Thanks.", "assistant: Bye."),
    ]
    assert (result.output, result.messages, inbox.unread) == ("Bye.", tuple(session.conversation), ())
    received = [event for event in events if isinstance(event, MessageReceived)]
    assert [(each.step, each.sent.by, each.sent.when) for each in received] == [
        (1, "ada", "next_step"),
        (2, "", "idle"),
    ]
    # The journal contains the messages: they are not sent again.
    journal = Journal.loads(result.journal.dumps())
    assert [step.kind for step in journal.steps()].count("receive") == 2
    assert (await agent.resume(journal, session=session)).messages == result.messages
    assert [len(ctx.intermediate) for ctx in replayed_contexts(agent.definition, journal, session)] == [0, 3, 5]


async def test_each_kind_of_answer_is_continued_by_a_message() -> None:
    class Place(BaseModel):
        name: str

    def place(name: str) -> Place:
        """Answer with a place."""
        return Place(name=name)

    @tool(final=True)
    def hand_over(name: str) -> str:
        """Hand over."""
        return f"over to {name}"

    reply = '{"name": "Ulm"}'
    hand_over_call = ToolCall(name="hand_over", arguments={"name": "b"})
    output_call = ToolCall(name="place", arguments={"name": "Ulm"})
    cases: dict[str, Agent[Any, Any]] = {
        "text": Agent(ScriptedModel(["One.", "Two."])),
        "type": Agent(ScriptedModel([reply, reply]), output=Place),
        "output function": Agent(ScriptedModel([output_call, output_call]), output=place),
        "final tool": Agent(ScriptedModel([hand_over_call, "Two."]), tools=[hand_over]),
    }
    failures: list[str] = []
    for name, agent in cases.items():
        with collected(failures, name):
            inbox, session = Inbox(), Session()
            inbox.send("Really?", when="idle")
            result = await agent.run("Where?", inbox=inbox, session=session)
            assert texts(session).count("user: Really?") == 1
            assert result.steps == 2
            assert result.messages == tuple(session.conversation)
            again = await agent.resume(Journal.loads(result.journal.dumps()), session=session)
            assert again.messages == result.messages
    assert not failures, "\n".join(failures)


async def test_a_message_before_the_first_step_is_in_the_first_prompt() -> None:
    inbox = Inbox()
    inbox.send("b too.")
    inbox.send([Text("See"), Image(Url("https://example.com/b.png"))])
    model = ScriptedModel(["Both."])
    result = await Agent(model).run("Is a there?", inbox=inbox)
    assert [message.text for message in result.messages][:2] == ["Is a there?", "b too."]
    assert len(result.messages[2].content) == 2
    assert (result.steps, len(result.composition.intermediate)) == (1, 2)


async def test_a_stream_accepts_messages_until_its_run_has_ended() -> None:
    stream = looking([LOOK, "One.", "Two."]).stream("Is a there?")
    results: list[RunResult[Any]] = []
    async for event in stream:
        if type(event).__name__ == "ToolStarted":
            stream.send("And b?")
        if isinstance(event, RunFinished):
            results.append(event.result)
            # The end refuses the message: after the last step, no step receives it.
            with pytest.raises(RunEnded):
                stream.send("Too late.")
    (result,) = results
    assert [message.text for message in result.messages] == ["Is a there?", "", "there", "And b?", "One."]
    with pytest.raises(RunEnded) as refused:
        stream.send("Too late.")
    assert (refused.value.run_id, refused.value.state) == (result.run_id, "finished")


async def test_a_paused_run_receives_a_message_after_the_decision() -> None:
    @tool(approval="always")
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(ScriptedModel([ToolCall(name="pay", arguments={}), "Done."]), tools=[pay])
    inbox, session = Inbox(), Session()
    with pytest.raises(Paused) as paused:
        await agent.run("Pay.", inbox=inbox, session=session)
    inbox.send("Quickly.")
    approve = {call.id: True for call in paused.value.calls}
    await agent.resume(paused.value.journal, approve=approve, inbox=inbox, session=session)
    assert texts(session) == ["user: Pay.", "assistant: ", "tool: paid", "user: Quickly.", "assistant: Done."]


async def test_messages_that_a_failed_run_did_not_receive_stay_unread_for_the_next_attempt() -> None:
    inbox, session = Inbox(), Session()
    agent = looking([LOOK, LOOK, "Done.", "Bye."], lambda: inbox.send("And b?", when="idle"), limits=Limits(steps=1))
    with pytest.raises(LimitExceeded) as failed:
        await agent.run("Is a there?", inbox=inbox, session=session)
    assert [sent.message.text for sent in inbox.unread] == ["And b?"]
    with pytest.raises(RunEnded):
        inbox.send("Hello?")
    resumed = await agent.resume(failed.value.journal, inbox=inbox, session=session, limits=Limits(steps=9))
    assert [message.text for message in resumed.messages].count(
        "And b?"
    ) == 2  # the call of the second step sent another message
    assert inbox.unread == ()


async def test_a_message_after_the_last_step_is_refused_before_the_run_has_ended() -> None:
    inbox, refused = Inbox(), list[RunEnded]()

    def listen(event: Any) -> None:
        if isinstance(event, RunFinished):
            with pytest.raises(RunEnded) as error:
                inbox.send("Too late.")
            refused.append(error.value)

    await Agent(ScriptedModel(["One."])).run("Count.", inbox=inbox, on_event=listen)
    assert (len(refused), inbox.unread) == (1, ())


async def test_a_listener_that_fails_loses_no_message() -> None:
    inbox = Inbox()
    inbox.send("And b?")

    def listen(event: Any) -> None:
        if isinstance(event, MessageReceived):
            raise OSError("the listener failed")

    with pytest.raises(OSError, match="listener"):
        await Agent(ScriptedModel(["One."])).run("Is a there?", inbox=inbox, on_event=listen)
    assert len(inbox.unread) == 1


async def test_a_run_continues_its_messages_without_its_journal() -> None:
    """After a crash between the answer and its journal, the conversation has the messages of the run."""
    session, inbox = Session(), Inbox()
    inbox.send("First.")
    agent = looking([LOOK, OSError("no network"), "Done."], lambda: inbox.send("And b?"))
    with pytest.raises(OSError, match="no network"):
        await agent.run("Is a there?", run_id="r", session=session, inbox=inbox)
    assert texts(session)[-1] == "user: And b?"
    result = await agent.run("Is a there?", run_id="r", session=session)
    assert [message.text for message in result.messages] == ["Is a there?", "First.", "", "there", "And b?", "Done."]
    assert texts(session)[-1] == "assistant: Done."


async def test_two_senders_and_threads_lose_no_message(tmp_path: Path) -> None:
    inbox, session = Inbox(), Session()

    async def sender(name: str) -> None:
        for number in range(20):
            await asyncio.to_thread(inbox.send, f"{name}{number}", by=name)

    def reply(sent: Any) -> str:
        return f"after {len(sent.intermediate)}"

    agent = Agent(ScriptedModel.repeat(reply))
    inbox.send("start", when="idle")
    running = asyncio.create_task(agent.run("Go.", inbox=inbox, session=session, journal=tmp_path / "run.jsonl"))
    outcomes = await asyncio.gather(sender("a"), sender("b"), return_exceptions=True)
    result = await running
    refused = [error for error in outcomes if error is not None]
    assert all(isinstance(error, RunEnded) for error in refused)
    names = [message.text for message in session.conversation if message.role == "user"]
    for name in "ab":
        own = [text for text in names if text.startswith(name)]
        assert own == [f"{name}{number}" for number in range(len(own))]
    assert Journal.read(tmp_path / "run.jsonl").messages == result.messages
    assert inbox.unread == ()


async def test_invalid_messages_are_refused() -> None:
    inbox = Inbox()
    options: dict[str, Any] = {"when": "now", "by": 7}
    with pytest.raises(AgentDefinitionError) as wrong:
        inbox.send("Hi", **options)
    assert wrong.value.name == "when, by"
    value: Any = 7
    with pytest.raises(ContextError):
        inbox.send(value)
    with pytest.raises(AgentDefinitionError) as no_inbox:
        await Agent(ScriptedModel(["One."])).run("Hi", inbox=value)
    assert no_inbox.value.name == "inbox"
    assert inbox.unread == ()

    async def nested() -> None:
        with pytest.raises(RunBusy):
            await Agent(ScriptedModel(["One."])).run("Hi", inbox=inbox)

    agent = looking([LOOK, "One."], lambda: None)
    with inbox.attached("r"):
        await nested()
    with pytest.raises(RunEnded):
        inbox.send("Hi")
    await agent.run("Hi", inbox=inbox)  # the next run with the inbox opens it again


async def test_guards_of_the_input_check_each_message() -> None:
    @guard("input")
    def no_numbers(text: str) -> Any:
        if "secret" in text:
            return Stop("a secret")
        return Replace(text.replace("17", "#"))

    inbox, session = Inbox(), Session()
    inbox.send("17 or 18?")
    agent = looking([LOOK, "Done."], lambda: inbox.send("secret"), guards=[no_numbers])
    with pytest.raises(GuardStopped) as stopped:
        await agent.run("Is 17 there?", inbox=inbox, session=session)
    assert texts(session) == ["user: Is # there?", "user: # or 18?", "assistant: ", "tool: there"]
    # A resumed run has the same verdict: the message is not checked or received again.
    with pytest.raises(GuardStopped):
        await agent.resume(Journal.loads(stopped.value.journal.dumps()), session=session)


async def test_reasons_of_cancellations_are_checked_before_the_run_is_cancelled() -> None:
    cases: list[tuple[Any, bool]] = [
        (7, False),
        (["a"], False),
        (None, False),
        ("a" * 2_001, False),
        ("\ud800 a ", True),
    ]
    failures: list[str] = []
    for reason, is_valid in cases:
        with collected(failures, repr(reason)[:20]):
            session = Session()
            stream = looking([LOOK, "One."]).stream("Is a there?", session=session)
            async for event in stream:
                if type(event).__name__ != "ToolStarted":
                    continue
                if is_valid:
                    await stream.cancel(reason)
                    continue
                with pytest.raises(AgentDefinitionError) as refused:
                    await stream.cancel(reason)
                assert refused.value.name == "reason"
            last = "assistant: One."
            if is_valid:
                last = "user: The run was cancelled: \ufffd a"
            assert texts(session)[-1] == last
    assert not failures, "\n".join(failures)


async def test_a_cancelled_stream_refuses_messages() -> None:
    stream = looking([LOOK, "One."]).stream("Is a there?")
    async for event in stream:
        if type(event).__name__ == "ToolStarted":
            await stream.cancel()
    never_started = looking(["One."]).stream("Is a there?")
    await never_started.cancel("not needed")
    for each in (stream, never_started):
        with raises(RunEnded, state="cancelled"):
            each.send("And b?")


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_resumed_run_is_cancelled_for_another_reason(tmp_path: Path, is_damaged: bool) -> None:
    class Damaged(Session):
        def append(self, *messages: Any, **options: Any) -> Any:
            if messages[0].text.startswith("The run was cancelled") and is_damaged:
                raise OSError("no disk")
            return super().append(*messages, **options)

    class Slow(ScriptedModel):
        async def request(self, composition: Any, *, on_delta: Any = None) -> Any:
            await asyncio.sleep(LONG)

    session, journal = Damaged(), tmp_path / "run.jsonl"
    agent = Agent(Slow([]))
    for reason in ("wrong shop", "wrong price"):
        inbox, has_started = Inbox(), asyncio.Event()

        def listen(event: Any, has_started: asyncio.Event = has_started) -> None:
            if type(event).__name__ == "PromptComposed":
                has_started.set()

        options: dict[str, Any] = {"session": session, "journal": journal, "inbox": inbox, "on_event": listen}
        work = agent.run("Is a there?", **options)
        if journal.exists():
            work.close()
            work = agent.resume(journal, **options)
        running = asyncio.create_task(work)
        await has_started.wait()
        inbox.reason = reason
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    notes = [text for text in texts(session) if "was cancelled:" in text]
    expected = ["user: The run was cancelled: wrong shop", "user: The run was cancelled: wrong price"]
    assert notes == ([] if is_damaged else expected)


def test_a_stream_for_synchronous_code_accepts_messages() -> None:
    session = Session()
    agent = looking([LOOK, "One.", "Two."], lambda: stream.send("And b?", when="idle"))
    stream = agent.stream_sync("Is a there?", session=session)
    stream.send("First.", by="ada")
    assert type([*stream][-1]).__name__ == "RunFinished"
    assert [text for text in texts(session) if text.startswith("user")] == [
        "user: Is a there?",
        "user: First.",
        "user: And b?",
    ]
    with raises(RunEnded, state="finished"):
        stream.send("Too late.")
    release, session = threading.Event(), Session()
    stream = looking([LOOK, "One."], lambda: release.wait(LONG)).stream_sync("Is a there?", session=session)
    for event in stream:
        if type(event).__name__ == "ToolStarted":
            threading.Timer(0.05, release.set).start()
            stream.cancel("wrong shop")
    assert texts(session)[-1] == "user: The run was cancelled: wrong shop"


def test_a_sent_message_has_its_time() -> None:
    inbox = Inbox()
    inbox.send("Hi", by="ada")
    (sent,) = inbox.unread
    assert isinstance(sent, SentMessage)
    assert (sent.message.role, sent.by, sent.sent_at > 1e9) == ("user", "ada", True)
