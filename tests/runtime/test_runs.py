"""One run: an input, tool calls, an answer; sync, async, anywhere."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentkit import (
    Agent,
    Chain,
    Composition,
    Document,
    Layers,
    Message,
    PromptContext,
    Reply,
    RunFinished,
    ScriptedModel,
    Session,
    ToolContext,
    Usage,
    UserInput,
    tool,
)
from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.ground import sync_driver
from agentkit.models import Delta, ModelError, ModelRateLimited, ModelUnavailable, OnDelta
from agentkit.prompts import Fact, Image, KnowledgePrompt, MemoPrompt, Text, TextPrompt
from tests.raising import raises
from tests.runtime.scripts import Library, calling, roles
from tests.waiting import LONG


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def double(a: int) -> int:
    """Double a number."""
    return 2 * a


def test_the_answer_of_a_model_is_the_output() -> None:
    result = Agent(ScriptedModel(["Four."])).run_sync("What is two and two?")
    assert result.output == "Four."
    assert [message.text for message in result.messages] == ["What is two and two?", "Four."]
    assert result.steps == 1
    assert result.finish_reason == "stop"


def test_tools_are_called_and_their_results_go_back_to_the_model() -> None:
    model = ScriptedModel([calling(("add", {"a": 2, "b": 2}), ("double", {"a": 5})), "4 and 10"])
    result = Agent(model, "Be exact.", tools=[add, double]).run_sync("Add and double.")
    sent = model.requests[1].to_openai()["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert [message["content"] for message in sent[3:]] == ["4", "10"]
    assert [message["tool_call_id"] for message in sent[3:]] == ["id1", "id2"]
    assert roles(result.messages) == "user assistant tool tool assistant"
    assert result.steps == 2


def test_the_model_receives_every_tool() -> None:
    model = ScriptedModel(["ok"])
    Agent(model, tools=[add, double]).run_sync("hi")
    offered = model.requests[0].to_openai()["tools"]
    assert [tool["function"]["name"] for tool in offered] == ["add", "double"]


def test_plain_functions_become_tools() -> None:
    def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    result = Agent(ScriptedModel([calling(("shout", {"text": "hey"})), "done"]), tools=[shout]).run_sync("go")
    assert result.messages[2].text == "HEY"


def test_the_usage_of_all_steps_is_added_up() -> None:
    first = Reply(calling(("double", {"a": 1})), Usage(10, 5, 3))
    second = Reply(Message("assistant", "2"), Usage(20, 1), "length")
    result = Agent(ScriptedModel([first, second]), tools=[double]).run_sync("go")
    assert result.usage == Usage(30, 6, 3)
    assert result.finish_reason == "length"


def test_two_runs_have_different_ids_unless_an_id_is_passed() -> None:
    agent = Agent(ScriptedModel.repeat("ok"))
    assert agent.run_sync("a").run_id != agent.run_sync("a").run_id
    assert agent.run_sync("a", run_id="mine").run_id == "mine"


def test_the_input_may_be_text_parts_a_user_input_or_a_complete_context() -> None:
    model = ScriptedModel.repeat("ok")
    agent = Agent(
        model,
        layers=Layers(before_input=[TextPrompt("For {{ additional_kwargs.to | default('you') }}."), KnowledgePrompt()]),
    )
    agent.run_sync("hello")
    assert model.requests[-1].messages[-1].text == "For you.\n\nhello"
    agent.run_sync([Text("look: "), Image(b"\x89PNG\r\n\x1a\n")])
    assert [type(part) for part in model.requests[-1].messages[-1].parts] == [Text, Image]
    agent.run_sync(UserInput("hello", additional_kwargs={"to": "Ann"}))
    assert "For Ann." in model.requests[-1].text
    context = PromptContext(user_input="hello", knowledge=(Fact("Ann likes tea."),), locale="en")
    agent.run_sync(context)
    assert "Ann likes tea." in model.requests[-1].text
    assert model.requests[-1].context.locale == "en"


def test_a_complete_context_gets_the_tools_of_the_agent_and_the_conversation_of_the_session() -> None:
    model = ScriptedModel.repeat("ok")
    agent = Agent(model, tools=[add])
    past = [Message("user", "before"), Message("assistant", "yes")]
    agent.run_sync(PromptContext(user_input="now", conversation=past))
    assert [message.text for message in model.requests[-1].messages] == ["before", "yes", "now"]
    assert [spec.name for spec in model.requests[-1].tools] == ["add"]
    session = Session()
    session.append(Message("user", "kept"), Message("assistant", "sure"))
    agent.run_sync(PromptContext(user_input="now"), session=session)
    assert [message.text for message in model.requests[-1].messages] == ["kept", "sure", "now"]


def test_recalled_documents_are_in_the_prompt_and_in_compose() -> None:
    library = Library("Tea is grown in Assam.")
    model = ScriptedModel(["In Assam."])
    agent = Agent(model, layers=Layers(before_input=MemoPrompt()), memory=library)
    assert "Assam" in agent.compose("Where is tea grown?").text
    agent.run_sync("Where is tea grown?")
    assert library.queries == ["Where is tea grown?"] * 2
    assert "Tea is grown in Assam." in model.requests[0].text
    assert model.requests[0].context.documents == (Document("Tea is grown in Assam.", id="d0"),)


async def test_memory_is_called_in_a_thread() -> None:
    library = Library("x")
    await Agent(ScriptedModel(["ok"]), memory=library).run("hi")
    assert library.threads[0] is not threading.current_thread()


def test_compose_shows_the_request_of_a_run_and_stores_nothing() -> None:
    session = Session()
    session.append(Message("user", "one"), Message("assistant", "two"))
    model = ScriptedModel(["ok"])
    agent = Agent(model, "Be brief.", tools=[add])
    shown = agent.compose("three", session=session)
    assert len(session.conversation) == 2 and not model.requests
    agent.run_sync("three", session=session)
    assert model.requests[0].to_openai() == shown.to_openai()


def test_a_composition_is_represented_by_its_text() -> None:
    model = ScriptedModel([calling(("double", {"a": 2})), "4"])
    session = Session()
    Agent(model, "Be brief.", tools=[double]).run_sync("Double 2.", session=session)
    sent = [*model.requests, Agent(model).compose("And 3?", session=session)]
    assert repr(sent[0]) == "Composition('system: Be brief.\\n\\nuser: Double 2.')"
    assert [str(composition) for composition in sent] == [composition.text for composition in sent]
    assert [len(composition.messages) for composition in sent] == [2, 4, 5]


def test_an_error_of_the_model_passes_through_and_leaves_the_session_valid() -> None:
    session = Session()
    agent = Agent(ScriptedModel([ModelUnavailable("down", model="m"), "back"]))
    with raises(ModelUnavailable, model="m"):
        agent.run_sync("hello?", session=session)
    assert roles(session.conversation) == "user"
    assert agent.run_sync("again?", session=session).output == "back"
    assert roles(session.conversation) == "user user assistant"


def test_an_error_after_tool_calls_keeps_the_calls_with_their_results_in_the_session() -> None:
    session = Session()
    agent = Agent(ScriptedModel([calling(("double", {"a": 2})), ModelRateLimited("slow down")]), tools=[double])
    with pytest.raises(ModelRateLimited):
        agent.run_sync("go", session=session)
    assert roles(session.conversation) == "user assistant tool"


@dataclass
class Db:
    rows: list[str]


def test_tools_receive_the_dependencies_and_the_ids_of_run_and_call() -> None:
    seen: list[ToolContext[Db]] = []

    @tool
    async def insert(row: str, context: ToolContext[Db]) -> int:
        """Insert a row."""
        seen.append(context)
        context.deps.rows.append(row)
        return len(context.deps.rows)

    agent = Agent(ScriptedModel([calling(("insert", {"row": "x"}, "c9")), "done"]), tools=[insert], deps=Db)
    db = Db([])
    agent.run_sync("go", deps=db, run_id="r1")
    assert db.rows == ["x"]
    assert (seen[0].run_id, seen[0].call_id, len(seen[0].idempotency_key)) == ("r1", "c9", 32)


def test_an_agent_accepts_a_chain_with_its_layers_and_output() -> None:
    model = ScriptedModel(["[1, 2]"])
    assert Agent(Chain(model, "List.", output=list[int])).run_sync("go").output == [1, 2]
    assert model.requests[0].system.text == "List."


def test_layers_or_output_next_to_a_chain_are_refused() -> None:
    chain = Chain(ScriptedModel([]), "a")
    with raises(AgentDefinitionError, name="model", value="Chain"):
        Agent(chain, "b")
    with raises(AgentDefinitionError, name="model", value="Chain"):
        Agent(chain, output=int)  # type: ignore[arg-type]


def test_an_agent_lists_the_kwargs_it_needs() -> None:
    schema = Agent(
        ScriptedModel([]), layers=Layers(before_input=TextPrompt("Speak {{ additional_kwargs.language }}."))
    ).additional_kwargs_schema
    assert schema is not None and schema["required"] == ["language"]
    assert Agent(ScriptedModel([]), "Speak.").additional_kwargs_schema is None


# run_sync, anywhere


async def test_run_sync_works_inside_a_running_loop() -> None:
    assert Agent(ScriptedModel(["ok"])).run_sync("hi").output == "ok"


def test_agents_call_agents_through_run_sync_to_any_depth() -> None:
    """Async tools block their loop, sync tools do not: neither may wait for a loop that waits for it."""

    def nested(depth: int) -> str:
        inner = (lambda: "the bottom") if depth == 0 else (lambda: nested(depth - 1))

        async def dive() -> str:
            return inner()

        def sink() -> str:
            return inner()

        model = ScriptedModel([calling("dive"), calling("sink"), lambda sent: sent.intermediate[-1].text])
        return Agent(model, tools=[dive, sink]).run_sync("go").output

    outcome: list[str] = []
    thread = threading.Thread(target=lambda: outcome.append(nested(3)), daemon=True)
    thread.start()
    thread.join(60)
    assert outcome == ["the bottom"]


def test_many_threads_may_run_the_same_agent() -> None:
    def answer(sent: Composition) -> str | Message:
        if not sent.intermediate:
            return calling(("double", {"a": int(sent.context.user_input.text)}))
        return sent.intermediate[-1].text

    agent = Agent(ScriptedModel.repeat(answer), tools=[double])
    with ThreadPoolExecutor(20) as pool:
        outputs = list(pool.map(lambda n: agent.run_sync(str(n)).output, range(100)))
    assert outputs == [str(2 * n) for n in range(100)]
    assert len([each for each in threading.enumerate() if each.name.startswith("agentkit-run-")]) <= 8


def test_a_blocked_event_loop_does_not_block_a_run_that_the_blocking_tool_waits_for() -> None:
    """The threads of a pool have no reference to the run that they work for."""
    inner = Agent(ScriptedModel.repeat("inner"))

    async def ask_twice() -> str:
        with ThreadPoolExecutor(2) as pool:
            outputs = [asked.output for asked in pool.map(inner.run_sync, ["a", "b"])]
            streams = pool.map(lambda text: [*inner.stream_sync(text)][-1].result.output, ["a", "b"])
            return " ".join([*outputs, *streams])

    agent = Agent(ScriptedModel([calling("ask_twice"), "ok"]), tools=[ask_twice])
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(agent.run_sync("go").messages[2].text), daemon=True)
    thread.start()
    thread.join(60)
    assert results == ["inner inner inner inner"]


async def test_a_hundred_simultaneous_runs_do_not_mix() -> None:
    async def answer_later(a: int) -> int:
        """Double, slowly."""
        await asyncio.sleep(0.001 * (a % 7))
        return 2 * a

    def answer(sent: Composition) -> str | Message:
        if not sent.intermediate:
            return calling(("answer_later", {"a": int(sent.context.user_input.text)}))
        return sent.intermediate[-1].text

    agent = Agent(ScriptedModel.repeat(answer), tools=[answer_later])
    results = await asyncio.gather(*[agent.run(str(n)) for n in range(100)])
    assert [result.output for result in results] == [str(2 * n) for n in range(100)]


def test_sync_runs_share_an_event_loop_so_that_connections_stay_open() -> None:
    loops = []

    async def note() -> str:
        loops.append(asyncio.get_running_loop())
        return "noted"

    agent = Agent(ScriptedModel.repeat(calling("note"), "ok"), tools=[note])
    agent.run_sync("a")
    agent.run_sync("b")
    assert loops[0] is loops[1]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Make SIGINT raise KeyboardInterrupt; a background job of a shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


_user: ContextVar[str] = ContextVar("user", default="nobody")


def test_a_process_that_ran_an_agent_with_a_memory_ends_without_output(tmp_path: Path) -> None:
    code = (
        "import sys; from agentkit import Agent, ScriptedModel; from agentkit.memory import Memory\n"
        "with Memory(sys.argv[1]) as memory:\n"
        "    print(Agent(ScriptedModel(['Noon.']), memory=memory).run_sync('When?').output)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("Noon.\n", "")


def test_context_variables_of_the_caller_reach_the_tools() -> None:
    def whoami() -> str:
        return _user.get()

    agent = Agent(ScriptedModel.repeat(calling("whoami"), "ok"), tools=[whoami])
    token = _user.set("ann")
    try:
        assert agent.run_sync("go").messages[2].text == "ann"

        async def inside() -> str:
            return agent.run_sync("go").messages[2].text

        assert asyncio.run(inside()) == "ann"
    finally:
        _user.reset(token)


def test_tasks_that_a_tool_leaves_running_end_with_the_event_loop_of_sync_runs() -> None:
    ended = []

    async def spawn() -> str:
        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        spawn.task = asyncio.create_task(forever())  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        return "started"

    Agent(ScriptedModel([calling("spawn"), "ok"]), tools=[spawn]).run_sync("go")
    assert ended == []
    sync_driver.stop_run_loops()
    assert ended == [True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_run_sync_works_in_a_forked_child_and_in_its_parent() -> None:
    agent = Agent(ScriptedModel.repeat("ok"))
    agent.run_sync("before")
    child = os.fork()
    if child == 0:  # pragma: no cover
        os._exit(0 if agent.run_sync("child").output == "ok" else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert agent.run_sync("after").output == "ok"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_tool_may_fork_while_sync_and_async_runs_are_in_progress() -> None:
    session = Session()
    inner = Agent(ScriptedModel.repeat("inner"))
    inner.run_sync("leaves an idle loop behind")

    async def fork() -> int:
        child = os.fork()
        if child == 0:  # pragma: no cover
            ok = inner.run_sync("child").output == "inner" and inner.run_sync("x", session=session).output == "inner"
            os._exit(0 if ok else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    agent = Agent(ScriptedModel([calling("fork"), "done"]), tools=[fork])
    result = asyncio.run(agent.run("go", session=session))
    assert result.messages[2].text == "0"
    assert inner.run_sync("after").output == "inner"


def test_an_interrupted_wait_inside_a_loop_cancels_the_run(interruptible: None) -> None:
    """Ctrl-C in a notebook: the wait raises, the run ends in order, then the interrupt continues."""
    ended = threading.Event()

    async def linger() -> str:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    session = Session()
    agent = Agent(ScriptedModel([calling("linger"), "never"]), tools=[linger])

    async def notebook() -> None:
        agent.run_sync("go", session=session)

    loop = asyncio.new_event_loop()
    # `asyncio.run` would handle the signal.
    with closing(loop), pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(notebook())
    assert ended.is_set()
    assert roles(session.conversation) == "user assistant tool"


def test_an_interrupt_of_run_sync_cancels_the_run_in_order(interruptible: None) -> None:
    async def press_ctrl_c() -> str:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()
        return ""

    session = Session()
    agent = Agent(ScriptedModel([calling("press_ctrl_c"), "never"]), tools=[press_ctrl_c])
    with pytest.raises(KeyboardInterrupt):
        agent.run_sync("go", session=session)
    assert roles(session.conversation) == "user assistant tool"
    assert Agent(ScriptedModel(["ok"])).run_sync("on", session=session).output == "ok"


def test_a_second_interrupt_of_run_sync_does_not_wait_for_the_first(interruptible: None) -> None:
    release = threading.Event()

    async def press_ctrl_c_twice() -> str:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            signal.raise_signal(signal.SIGINT)
            while not release.is_set():
                await asyncio.sleep(0.001)
        return "never"

    agent = Agent(ScriptedModel([calling("press_ctrl_c_twice"), "never"]), tools=[press_ctrl_c_twice])
    with pytest.raises(KeyboardInterrupt):
        agent.run_sync("go")
    release.set()
    assert Agent(ScriptedModel(["ok"])).run_sync("on").output == "ok"


def test_run_sync_leaves_a_handler_of_the_program_in_place(interruptible: None) -> None:
    heard: list[int] = []

    def note(number: int, frame: object) -> None:
        heard.append(number)

    async def press_ctrl_c() -> str:
        signal.raise_signal(signal.SIGINT)
        return "done"

    signal.signal(signal.SIGINT, note)
    assert Agent(ScriptedModel([calling("press_ctrl_c"), "ok"]), tools=[press_ctrl_c]).run_sync("go").output == "ok"
    assert signal.getsignal(signal.SIGINT) is note
    assert heard == [signal.SIGINT]


def test_run_sync_does_not_call_repr_of_the_output() -> None:
    class Output:
        def __repr__(self) -> str:
            raise AssertionError("nobody asked")

    async def answer() -> Output:
        return Output()

    assert isinstance(sync_driver.run_blocking(answer()), Output)


def test_a_run_that_is_interrupted_before_its_start_never_starts(
    interruptible: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_driver, "_PATIENCE", LONG)
    is_blocked, release = threading.Event(), threading.Event()

    async def block_the_loop() -> str:
        is_blocked.set()
        release.wait(LONG)
        return "done"

    blocking = Agent(ScriptedModel([calling("block_the_loop"), "ok"]), tools=[block_the_loop])
    model = ScriptedModel(["never"])
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(blocking.run_sync, "go")
        assert is_blocked.wait(LONG)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            Agent(model).run_sync("go")
        release.set()
        assert blocked.result(LONG).output == "ok"
    assert not model.requests


def test_the_last_event_contains_the_result() -> None:
    events: list[object] = []
    result = Agent(ScriptedModel(["ok"])).run_sync("hi", on_event=events.append)
    assert isinstance(events[-1], RunFinished) and events[-1].result is result


def test_the_text_of_a_result_is_its_answer() -> None:
    assert str(Agent(ScriptedModel(["Four."])).run_sync("2 + 2?")) == "Four."
    assert str(Agent(ScriptedModel(["4"]), output=int).run_sync("2 + 2?")) == "4"


class Thinker:
    """A model that sends deltas of every kind."""

    name = "thinker"

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        assert on_delta is not None
        for delta in (Delta("Hm.", "thinking"), Delta("Two and "), Delta("{", "arguments"), Delta("two is four.")):
            on_delta(delta)
        return Reply(Message("assistant", "Two and two is four."))


async def test_a_stream_of_text_yields_the_text_of_the_model_only() -> None:
    for model in (ScriptedModel.repeat("Two and two is four."), Thinker()):
        agent = Agent(model)
        assert "".join([text async for text in agent.stream_text("2 + 2?")]) == "Two and two is four."
        assert "".join(agent.stream_text_sync("2 + 2?")) == "Two and two is four."


async def test_a_stream_of_text_raises_the_error_of_the_run() -> None:
    agent = Agent(ScriptedModel([ModelError("down"), ModelError("down")]))
    with pytest.raises(ModelError):
        [text async for text in agent.stream_text("2 + 2?")]
    with pytest.raises(ModelError):
        list(agent.stream_text_sync("2 + 2?"))
    with pytest.raises(UnknownOption):
        next(agent.stream_text_sync("2 + 2?", nonsense=1))  # type: ignore[call-arg]
