"""Cancellation, plug-ins that raise or return garbage, sessions that other code writes or deletes: each ends typed."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentkit import (
    Agent,
    AgentError,
    Composition,
    Journal,
    Layers,
    Message,
    PromptContext,
    Reply,
    ScriptedModel,
    Session,
    tool,
)
from agentkit.errors import AgentDefinitionError, ApprovalError
from agentkit.memory import Memory, StoreError
from agentkit.models import ModelReplyError, OnDelta
from agentkit.prompts import ContextError, Example, ExamplesPrompt, PromptError, ToolSpec
from agentkit.tools import ToolError
from tests.raising import raises
from tests.runtime.scripts import calling, roles, valid

ROOT = Path(__file__).parents[2]
"""Folder of the packages, for another process."""


class Ticking:
    """A model that suspends before it answers."""

    name = "ticking"

    def __init__(self, script: list[Any]) -> None:
        self.model = ScriptedModel(script)

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        await asyncio.sleep(0)
        reply = await self.model.request(composition, on_delta=on_delta)
        await asyncio.sleep(0)
        return reply


class Last:
    """A selector that suspends."""

    async def select(self, query: str, examples: Any) -> Any:
        await asyncio.sleep(0)
        return examples[-1:]


class PerRun:
    """A toolset that suspends."""

    def __init__(self, paid: list[str]) -> None:
        self.paid = paid

    async def at(self, ctx: PromptContext) -> Any:
        await asyncio.sleep(0)

        @tool(approval="always")
        async def pay(amount: int) -> str:
            """Pays."""
            await asyncio.sleep(0)
            self.paid.append(str(amount))
            await asyncio.sleep(0)
            return f"paid {amount}"

        @tool
        async def look() -> str:
            """Looks."""
            await asyncio.sleep(0)
            return "5"

        return [pay, look]


SCRIPT = [calling(("pay", {"amount": 3}), "look", "look", text="On it."), "Paid."]


def cashier(paid: list[str], script: list[Any]) -> Agent[Any, str]:
    pool = ExamplesPrompt(examples=[Example("a", "b"), Example("c", "d")], selector=Last())
    return Agent(Ticking(script), layers=Layers("Pay.", before_input=pool), tools=PerRun(paid), name="cashier")


async def approve(call: Any) -> bool:
    await asyncio.sleep(0)
    return True


async def listen(event: object) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("heard", [False, True], ids=["silent", "heard"])
async def test_a_run_cancelled_at_any_step_resumes_with_the_same_messages(heard: bool) -> None:
    options: Any = {"approve": approve, **({"on_event": listen} if heard else {})}
    whole = await cashier([], SCRIPT).run("pay", run_id="r", **options)
    steps = 0
    while True:
        session, paid = Session(), list[str]()
        run = asyncio.create_task(cashier(paid, SCRIPT).run("pay", session=session, run_id="r", **options))
        for _ in range(steps):
            await asyncio.sleep(0)
        run.cancel()
        try:
            await run
            break
        except asyncio.CancelledError as error:
            assert valid(session.conversation)
            journal: Any = getattr(error, "journal", None)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        if journal is not None:
            done = sum(entry.effect == "CallModel" for entry in journal.entries)
            known = Journal.loads(journal.dumps())
            resumed = await cashier(paid, SCRIPT[done:]).resume(known, session=session, **options)
            assert roles(resumed.messages) == roles(whole.messages), steps
            assert tuple(session.conversation) == resumed.messages
            assert resumed.output == whole.output
            assert len(paid) <= 2  # a call in progress may run again, with the same idempotency key
        steps += 1
    assert steps >= 10  # on Python 3.14; one more before
    assert tuple(session.conversation) == whole.messages


class Garbage:
    """A model that answers with any object."""

    name = "garbage"

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def request(self, composition: Composition, *, on_delta: Any = None) -> Any:
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [None, "text", {"role": "assistant"}, Message("assistant", "hi"), Reply("text"), Reply(Message("user", "hi"))],  # type: ignore[arg-type]
    ids=["None", "str", "dict", "message", "reply of text", "reply of a user"],
)
def test_a_model_that_answers_with_garbage_is_a_model_error(answer: object) -> None:
    session = Session()
    with raises(ModelReplyError, model="garbage") as caught:
        Agent(Garbage(answer)).run_sync("x", session=session)
    assert roles(session.conversation) == "user"
    assert roles(caught.value.messages) == "user"  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


@pytest.mark.parametrize("found", [None, 3, "look", ["look"], [None], [tool(print), tool(print)]])
def test_a_toolset_that_returns_garbage_ends_the_run_before_any_request(found: Any) -> None:
    class Tools:
        async def at(self, ctx: PromptContext) -> Any:
            return found

    model, session = ScriptedModel(["never"]), Session()
    with pytest.raises((ToolError, AgentError, TypeError)) as caught:
        Agent(model, tools=Tools()).run_sync("x", session=session)
    assert not model.requests and not len(session.conversation)
    assert "tool" in str(caught.value).lower()


@pytest.mark.parametrize("kind", ["async", "sync", "blocking"])
@pytest.mark.parametrize("found", [None, 3, "text", ["text"], [None], ValueError("no")], ids=repr)
def test_a_selector_that_returns_garbage_or_raises_is_a_prompt_error(found: Any, kind: str) -> None:
    class Selector:
        blocking = kind == "blocking"

        def select(self, query: str, examples: Any) -> Any:
            if isinstance(found, Exception):
                raise found
            if kind != "async":
                return found

            async def later() -> Any:
                return found

            return later()

    layers = Layers(before_input=ExamplesPrompt(examples=[Example("a", "b")], selector=Selector()))
    model, session = ScriptedModel(["never"]), Session()
    with raises(PromptError, name="Selector") as caught:
        Agent(model, layers=layers).run_sync("x", session=session)
    assert not model.requests and not len(session.conversation)
    assert caught.value.journal is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize("answer", [None, 0, "yes", 1, b"yes", ValueError("no"), KeyError("k")], ids=repr)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_decider_that_raises_or_answers_with_garbage_runs_no_call_and_loses_no_result(
    answer: Any, is_async: bool
) -> None:
    paid: list[int] = []

    @tool(approval="always")
    def pay(amount: int) -> str:
        """Pays."""
        paid.append(amount)
        return "paid"

    def decide(call: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def adecide(call: Any) -> Any:
        return decide(call)

    session = Session()
    agent = Agent(ScriptedModel([calling(("pay", {"amount": 3}))]), tools=[pay])
    with pytest.raises((ApprovalError, ValueError, KeyError)) as caught:
        agent.run_sync("x", session=session, approve=adecide if is_async else decide)
    assert type(caught.value) in (ApprovalError, type(answer))
    assert not paid and valid(session.conversation)
    known: Any = caught.value.journal  # type: ignore[union-attr]
    resumed = agent.with_changes(model=ScriptedModel(["ok"])).resume_sync(
        known, session=session, approve=lambda call: True
    )
    assert (resumed.output, paid) == ("ok", [3])
    assert roles(session.conversation) == "user assistant tool assistant"


WRITER = """
import sys
from agentkit import Agent, ScriptedModel
from agentkit.memory import Memory
with Memory(sys.argv[1]) as memory:
    Agent(ScriptedModel(["theirs"])).run_sync("from another process", session=memory.session("s"))
"""


def test_a_run_of_another_process_on_the_same_session_loses_no_message_of_either(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        session = memory.session("s")

        @tool
        def other() -> str:
            """Start another process that runs on the conversation."""
            subprocess.run([sys.executable, "-c", WRITER, str(tmp_path)], check=True, cwd=ROOT, timeout=60)
            return "it ran"

        agent = Agent(ScriptedModel([calling("other"), "mine"]), tools=[other])
        result = agent.run_sync("go", session=session)
        stored = memory.session("s").conversation
        assert result.output == "mine"
        assert valid(stored)
        assert [message.text for message in stored] == ["go", "from another process", "theirs", "", "it ran", "mine"]


@pytest.mark.parametrize("step", [1, 2])
def test_a_session_deleted_during_a_run_ends_it_with_a_typed_error_and_its_messages(tmp_path: Path, step: int) -> None:
    with Memory(tmp_path) as memory:
        session = memory.session("s")
        done = 0

        @tool
        def work() -> str:
            """Works."""
            nonlocal done
            done += 1
            if done == step:
                memory.delete_session("s")
            return "worked"

        agent = Agent(ScriptedModel([calling("work"), calling("work"), "never"]), tools=[work])
        with pytest.raises(StoreError) as caught:
            agent.run_sync("go", session=session)
        assert roles(caught.value.messages) == "user" + " assistant tool" * step  # type: ignore[attr-defined]
        assert valid(caught.value.messages)  # type: ignore[attr-defined]
        assert valid(memory.session("s").conversation)
        assert "delete" in str(caught.value)


@pytest.mark.parametrize("found", [None, 3, "text", ["text"], [None], {"a": 1}, ValueError("no")], ids=repr)
def test_a_memory_that_raises_or_returns_garbage_ends_the_run_without_a_request(found: Any) -> None:
    def recall(query: str) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    model, session = ScriptedModel(["never"]), Session()
    with pytest.raises((AgentError, TypeError, ValueError)) as caught:
        Agent(model, memory=recall).run_sync("x", session=session)
    assert not model.requests and not len(session.conversation)
    assert caught.value.journal is not None  # type: ignore[union-attr]
    if not isinstance(found, Exception):
        assert "recall: expected Document" in str(caught.value)


def test_parts_of_a_context_that_a_run_would_ignore_are_refused_by_name() -> None:
    session = Session()
    session.append(Message("user", "Hi."), Message("assistant", "Hello."), key="k")
    before = [Message("user", "Hey."), Message("assistant", "Hello.")]
    model = ScriptedModel(["never", "fine"])
    ctx = PromptContext(user_input="x", conversation=before, tools=[ToolSpec("other", "Other.")])  # type: ignore[arg-type]
    with pytest.raises(ContextError) as caught:
        Agent(model).run_sync(ctx, session=session)
    assert [place for place, _ in caught.value.problems] == ["conversation", "tools"]
    assert not model.requests
    same = PromptContext(user_input="x", conversation=session.conversation)  # type: ignore[arg-type]
    Agent(model).run_sync(same, session=session)
    assert [message.text for message in model.requests[0].conversation] == ["Hi.", "Hello."]


class Mute(OSError):
    """An error whose text cannot be computed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_an_error_without_a_text_stays_the_error_of_its_run(tmp_path: Path) -> None:
    class Store(Session):
        def append(self, *messages: Any, key: str | None = None, allow_media: bool = False) -> Any:
            if self.conversation:
                raise Mute
            return super().append(*messages, key=key)

    async def linger() -> str:
        """Wait."""
        running.set()
        await asyncio.Event().wait()
        return ""

    def write(line: str) -> None:
        raise Mute

    running = asyncio.Event()
    agent = Agent(ScriptedModel([calling("linger"), "Hello."]), tools=[linger])
    run = asyncio.create_task(agent.run("go", session=Store()))
    await running.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await run
    assert "could not be stored: Mute" in cancelled.value.__notes__[0]
    with pytest.raises(Mute) as failed:
        await agent.run("go", journal=write)
    assert failed.value.journal is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize("run_id", [7, 0, "", b"r", True])
def test_the_id_of_a_run_must_be_text(run_id: Any) -> None:
    model = ScriptedModel(["Hello."])
    with raises(AgentDefinitionError, name="run_id"):
        Agent(model).run_sync("Hi.", run_id=run_id)
    assert not model.requests


@pytest.mark.parametrize("name", [7, None, b"shop"])
def test_names_in_a_journal_must_be_text(name: Any) -> None:
    with raises(AgentDefinitionError, name="name"):
        Agent(ScriptedModel(["Hello."]), name=name)
    with raises(AgentDefinitionError, name="session.id"):
        Agent(ScriptedModel(["Hello."])).run_sync("Hi.", session=Session(name))
