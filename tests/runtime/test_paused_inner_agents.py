"""Agents that run as tools pause with the outer run, and resume with it from its journal."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkit import (
    Agent,
    AgentError,
    Approved,
    Composition,
    Denied,
    Journal,
    LimitExceeded,
    Limits,
    Message,
    Paused,
    Reply,
    ScriptedModel,
    Session,
    ToolCall,
    ToolContext,
    Usage,
    tool,
)
from agentkit.errors import ApprovalError, JournalError, OutputError, SessionBusy
from agentkit.memory import Memory, StoreError
from agentkit.tools import Tool
from tests.effort import thinned
from tests.raising import raises
from tests.runtime.scripts import calling, roles, valid

Script = Callable[[Composition], Any]


class World:
    """Effects of tools, by name and number, and the number of requests of each model."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()

    def tools(self) -> list[Any]:
        @tool
        async def look(name: str, context: ToolContext[None]) -> str:
            """Look up a debt."""
            self.done[f"look {name} {context.idempotency_key}"] += 1
            await asyncio.sleep(0)
            return f"{name}: 5"

        @tool(approval="always")
        def pay(name: str, context: ToolContext[None]) -> str:
            """Pay."""
            self.done[f"pay {name} {context.idempotency_key}"] += 1
            return f"paid {name}"

        return [look, pay]

    def agent(self, name: str, script: Script, *, tools: Any = None, **options: Any) -> Agent[Any, Any]:
        def reply(sent: Composition) -> Reply:
            self.asked[name] += 1
            said = script(sent)
            message = said if isinstance(said, Message) else Message("assistant", said)
            return Reply(message, Usage(10, 1), "tool_calls" if message.tool_calls else "stop")

        model = ScriptedModel.repeat(reply)
        return Agent(model, f"You are {name}.", tools=self.tools() if tools is None else tools, name=name, **options)

    @property
    def paid(self) -> list[str]:
        return sorted(what.split()[1] for what in self.done if what.startswith("pay"))

    def once(self) -> bool:
        return set(self.done.values()) <= {1}


def step(sent: Composition) -> int:
    return sum(message.role == "assistant" for message in sent.intermediate)


def payer(sent: Composition) -> Any:
    """Look up the person of the input, pay, and answer."""
    who = sent.user.text
    replies = [
        calling(("look", {"name": who}, "a")),
        calling(("pay", {"name": who}, "b"), ("look", {"name": "Eve"}, "c")),
        f"{who} is paid: {sent.messages[-2].text}",
    ]
    return replies[step(sent)]


def offered(agent: Agent[Any, Any], **options: Any) -> Tool[..., Any]:
    return agent.as_tool(name=agent.name, description="Pays.", **options)


def ask(*names: str, tool_name: str = "clerk") -> Message:
    return calling(*[(tool_name, {"input": name}, f"c{number}") for number, name in enumerate(names, 1)])


def firm(world: World, *names: str, **options: Any) -> Agent[Any, Any]:
    """An agent that calls a clerk for each name at once."""

    def boss(sent: Composition) -> Any:
        if step(sent) == 0:
            return ask(*names)
        return " ".join(message.text for message in sent.messages if message.role == "tool")

    clerk = world.agent("clerk", payer)
    return world.agent("boss", boss, tools=[*world.tools(), offered(clerk)], **options)


def deep(world: World, *names: str) -> Agent[Any, Any]:
    """An agent that calls a manager, which calls the clerk for each name."""
    clerk = world.agent("clerk", payer)

    def managing(sent: Composition) -> Any:
        return ask(*sent.user.text.split(",")) if step(sent) == 0 else sent.messages[-1].text

    manager = world.agent("manager", managing, tools=[offered(clerk)])

    def boss(sent: Composition) -> Any:
        return calling(("manager", {"input": ",".join(names)}, "m")) if step(sent) == 0 else sent.messages[-1].text

    return world.agent("boss", boss, tools=[offered(manager)])


def pause(agent: Agent[Any, Any], journal: Journal | None = None, **options: Any) -> Paused:
    with pytest.raises(Paused) as found:
        if journal is None:
            agent.run_sync("go", run_id="r", **options)
        else:
            agent.resume_sync(journal, **options)
    return found.value


def test_the_run_pauses_with_the_calls_of_its_agents_and_resumes_with_decisions_by_id() -> None:
    world = World()
    paused = pause(firm(world, "Ada", "Bob"))
    assert [(call.id, call.name) for call in paused.calls] == [("c1/b", "pay"), ("c2/b", "pay")]
    assert paused.agents == {"c1/b": "clerk", "c2/b": "clerk"}
    assert "pay (c1/b) of clerk" in str(paused) and pickle.loads(pickle.dumps(paused)).agents == paused.agents
    stored = paused.journal.dumps()
    assert world.paid == [] and Journal.loads(stored).dumps() == stored

    later = World()
    again = firm(later, "Ada", "Bob")
    result = again.resume_sync(Journal.loads(stored), approve={"c1/b": True, "c2/b": Denied("no money")})
    assert later.paid == ["Ada"] and later.asked == {"clerk": 2, "boss": 1}
    assert "no money" in result.output and "paid Ada" in result.output
    assert roles(result.messages) == "user assistant tool tool assistant"
    # The result of an undisturbed run is the same.
    whole = World()
    answers = {"c1/b": True, "c2/b": Denied("no money")}
    undisturbed = firm(whole, "Ada", "Bob").run_sync("go", run_id="r", approve=lambda call: answers[call.id])
    assert (result.messages, result.usage) == (undisturbed.messages, undisturbed.usage)
    assert world.done + later.done == whole.done and whole.once()


def test_the_run_pauses_again_while_some_calls_wait_and_keeps_the_decisions() -> None:
    world = World()
    first = pause(firm(world, "Ada", "Bob"))
    second = pause(firm(world, "Ada", "Bob"), first.journal, approve={"c2/b": Approved({"name": "Bo"})})
    assert [call.id for call in second.calls] == ["c1/b"] and world.paid == ["Bo"]
    with raises(ApprovalError, name="approve", value="c2/b"):
        firm(world, "Ada", "Bob").resume_sync(second.journal, approve={"c1/b": True, "c2/b": True})
    both = {"c1/b": True, "c2/b": Approved({"name": "Bo"})}
    result = firm(world, "Ada", "Bob").resume_sync(second.journal, approve=both)
    assert "paid Ada" in result.output and "paid Bo" in result.output and world.once()


def test_inner_agents_of_inner_agents_pause_and_resume() -> None:
    world = World()
    paused = pause(deep(world, "Ada", "Bob"))
    assert [call.id for call in paused.calls] == ["m/c1/b", "m/c2/b"]
    assert paused.agents == {"m/c1/b": "manager/clerk", "m/c2/b": "manager/clerk"}
    second = pause(deep(world, "Ada", "Bob"), Journal.loads(paused.journal.dumps()), approve={"m/c1/b": True})
    assert [call.id for call in second.calls] == ["m/c2/b"]
    journal = Journal.loads(second.journal.dumps())
    result = deep(world, "Ada", "Bob").resume_sync(journal, approve=lambda call: call.id == "m/c2/b")
    assert world.paid == ["Ada", "Bob"] and world.once() and world.asked == {"boss": 2, "manager": 2, "clerk": 6}
    assert result.usage.input_tokens == 100


@pytest.mark.parametrize(
    ("given", "path", "name", "value"),
    [
        ({"c1/x": True}, "clerk (c1)", "approve", "x"),
        ({"c9/b": True}, None, "approve", "c9/b"),
        ({"b": True}, None, "approve", "b"),
        ({"c1/b/z": True}, "clerk (c1)", "approve", "b/z"),
        ({"c1/b": "yes"}, "clerk (c1)", "pay (b)", "str"),
        (lambda call: "yes", "clerk (c1)", "pay (b)", "str"),
    ],
)
def test_an_invalid_decision_ends_the_run_and_no_model_reads_it(
    given: Any, path: str | None, name: str, value: str
) -> None:
    world = World()
    paused = pause(firm(world, "Ada"))
    before = sum(world.asked.values())
    with raises(ApprovalError, path=path, name=name, value=value) as failed:
        firm(world, "Ada").resume_sync(paused.journal, approve=given)
    assert world.paid == [] and sum(world.asked.values()) == before
    journal: Any = failed.value.journal
    assert firm(world, "Ada").resume_sync(journal, approve={"c1/b": True}).output == "Ada is paid: paid Ada"
    assert world.once()


def test_a_decision_without_a_waiting_call_is_refused_before_any_request() -> None:
    model = ScriptedModel([OSError("gone"), "never"])
    with raises(OSError, args=("gone",)) as failed:
        Agent(model).run_sync("go")
    journal: Any = failed.value.journal  # type: ignore[attr-defined]
    with raises(ApprovalError, name="approve", value="c1"):
        Agent(model).resume_sync(journal, approve={"c1": True})
    done = Agent(ScriptedModel(["x"])).run_sync("go").journal
    with raises(ApprovalError, name="approve", value="c1"):
        Agent(model).resume_sync(done, approve={"c1": True})
    assert len(model.requests) == 1


def test_calls_of_the_run_and_of_inner_agents_can_wait_together() -> None:
    world = World()

    def boss(sent: Composition) -> Any:
        if step(sent) == 0:
            return calling(("pay", {"name": "Own"}, "b"), ("clerk", {"input": "Ada"}, "c1"))
        return "done"

    def agent() -> Agent[Any, Any]:
        return world.agent("boss", boss, tools=[*world.tools(), offered(world.agent("clerk", payer))])

    own = pause(agent())
    assert [call.id for call in own.calls] == ["b"] and own.agents == {}
    inner = pause(agent(), own.journal, approve={"b": True})
    assert [call.id for call in inner.calls] == ["c1/b"] and world.paid == ["Own"]
    assert agent().resume_sync(inner.journal, approve={"b": True, "c1/b": True}).output == "done"
    assert world.paid == ["Ada", "Own"] and world.once()


def test_calls_after_a_waiting_sequential_call_do_not_start() -> None:
    world = World()

    @tool(sequential=True)
    def close() -> str:
        """Close the books."""
        world.done["close"] += 1
        return "closed"

    def boss(sent: Composition) -> Any:
        if step(sent) == 0:
            return calling(("look", {"name": "x"}, "l"), ("clerk", {"input": "Ada"}, "c1"), ("close", {}, "z"))
        return " ".join(message.text for message in sent.messages if message.role == "tool")

    def agent() -> Agent[Any, Any]:
        return world.agent("boss", boss, tools=[*world.tools(), close, offered(world.agent("clerk", payer))])

    paused = pause(agent())
    assert [call.id for call in paused.calls] == ["c1/b"] and not world.done["close"]
    assert agent().resume_sync(paused.journal, approve={"c1/b": True}).output.endswith("paid Ada closed")
    assert world.once()


def test_a_retry_of_the_tool_applies_to_failures_and_not_to_a_pause() -> None:
    world = World()
    clerk = world.agent("clerk", payer)
    tools = [offered(clerk, retries=3, backoff=0.0, max_consecutive_failures=1)]
    boss = world.agent("boss", lambda sent: ask("Ada") if step(sent) == 0 else sent.messages[-1].text, tools=tools)
    paused = pause(boss)
    assert world.asked["clerk"] == 2
    assert boss.resume_sync(paused.journal, approve={"c1/b": True}).output == "Ada is paid: paid Ada"


def test_an_agent_that_fails_after_a_pause_fails_only_its_call() -> None:
    world = World()

    def failing(sent: Composition) -> Any:
        if step(sent) == 2:
            raise OSError("gone")
        return payer(sent)

    def agent() -> Agent[Any, Any]:
        return world.agent(
            "boss",
            lambda sent: ask("Ada") if step(sent) == 0 else sent.messages[-1].text,
            tools=[offered(world.agent("clerk", failing))],
        )

    result = agent().resume_sync(pause(agent()).journal, approve={"c1/b": True})
    assert result.output == "clerk failed: OSError: gone" and world.once()
    assert result.usage.input_tokens == 40


def test_an_agent_with_another_name_since_the_pause_is_refused() -> None:
    world = World()
    paused = pause(firm(world, "Ada"))
    other = World()
    renamed = Agent(ScriptedModel.repeat("x"), "", tools=other.tools(), name="cook")
    boss = other.agent("boss", lambda sent: "x", tools=[renamed.as_tool(name="clerk", description="Pays.")])
    with raises(JournalError, name="agent", value="clerk") as failed:
        boss.resume_sync(paused.journal, approve={"c1/b": True})
    assert not other.asked and not other.done
    journal: Any = failed.value.journal
    assert firm(world, "Ada").resume_sync(journal, approve={"c1/b": True}).output == "Ada is paid: paid Ada"


def test_the_limits_of_the_run_count_the_usage_of_its_agents_before_the_pause() -> None:
    world = World()
    limits = Limits(tokens=50)
    paused = pause(firm(world, "Ada", limits=limits))
    assert paused.usage.input_tokens == 30
    with pytest.raises(LimitExceeded) as over:
        firm(world, "Ada", limits=Limits(tokens=36)).resume_sync(paused.journal, approve={"c1/b": True})
    assert over.value.usage.input_tokens == 40 and valid(over.value.messages)
    result = firm(world, "Ada", limits=limits).resume_sync(paused.journal, approve={"c1/b": Denied()})
    assert result.usage.input_tokens == 50


async def test_a_run_that_is_cancelled_while_an_inner_agent_waits_has_a_valid_history() -> None:
    world, session = World(), Session()
    hanging = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        hanging.set()
        await asyncio.Event().wait()
        return ""

    def boss(sent: Composition) -> Any:
        return calling(("clerk", {"input": "Ada"}, "c1"), ("hang", {}, "h"))

    agent = world.agent("boss", boss, tools=[hang, offered(world.agent("clerk", payer))])
    run = asyncio.create_task(agent.run("go", session=session))
    await hanging.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert roles(session.conversation) == "user assistant tool tool" and valid(session.conversation)
    assert world.paid == []


def known_calls(journal: Journal) -> int:
    """Return the number of calls of plain tools with a recorded result."""
    own = sum(result.name in ("look", "pay") for result in journal.tool_results)
    return own + sum(map(known_calls, journal.inner.values()))


class Killed(BaseException):
    """The process was killed."""


@pytest.mark.long
@pytest.mark.untraced
@pytest.mark.parametrize("make", thinned([firm, deep]))
def test_a_run_resumes_from_any_line_of_its_journal_without_repeated_calls(
    make: Callable[..., Agent[Any, Any]], tmp_path: Path
) -> None:
    whole = World()
    undisturbed = make(whole, "Ada", "Bob").run_sync("go", run_id="r", approve=lambda call: True)
    number = 1
    while True:
        world, left, path = World(), [number], tmp_path / f"{number}.jsonl"

        def count(line: str, left: list[int] = left, path: Path = path) -> None:
            if not left[0]:
                raise Killed
            left[0] -= 1
            with path.open("a") as file:
                file.write(line)

        try:
            make(world, "Ada", "Bob").run_sync("go", run_id="r", approve=lambda call: True, journal=count)
            break
        except Killed:
            pass
        lines = path.read_text()
        known = Journal.loads(lines)
        for stored in (lines, known.dumps(), pickle.loads(pickle.dumps(known)).dumps()):
            again = World()
            result = make(again, "Ada", "Bob").resume_sync(Journal.loads(stored), approve=lambda call: True)
            assert (result.messages, result.usage) == (undisturbed.messages, undisturbed.usage)
            # Calls in progress at the kill are repeated with the same key.
            assert set(world.done + again.done) == set(whole.done)
            counts = (world.done + again.done).values()
            assert max(counts) <= 2 and sum(counts) <= sum(whole.done.values()) + 4  # the number of calls in progress
            assert sum(again.done.values()) == sum(whole.done.values()) - known_calls(known)
        result = make(World(), "Ada", "Bob").resume_sync(path, approve=lambda call: True)
        assert result.messages == undisturbed.messages
        more = Journal.read(path)
        assert make(World(), "Ada", "Bob").resume_sync(path).messages == undisturbed.messages
        assert Journal.read(path).lines == more.lines
        number += 1
    assert number > 20


def test_a_journal_with_inner_agents_can_be_cut_at_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(Paused):
        deep(World(), "Ada", "Bob").run_sync("go", run_id="r", journal=path)
    for data in (path.read_bytes(), Journal.read(path).dumps().encode()):
        for end in range(data.index(b"\n") + 1, len(data), 7):
            Journal.loads(data[:end])
        for end in range(data.index(b"\n") + 1, len(data), len(data) // 12):
            world = World()
            result = deep(world, "Ada", "Bob").resume_sync(Journal.loads(data[:end]), approve=lambda call: True)
            assert "paid" in result.output and world.paid == ["Ada", "Bob"] and world.once()


HEAD = pause(firm(World(), "Ada")).journal.dumps().splitlines(keepends=True)[0]


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ('{"call":"c1","line":{"effect":"Begin","answer":[0,0]}}', "journal", None),
        ('{"call":"c1","line":"call"}', "journal", None),
        ('{"call":"c1","line":7}', None, "TypeError"),
        ('{"call":["c1"],"line":{"journal":1}}', None, "TypeError"),
        ('{"call":"c1"}', "line", None),
        ('{"call":"c1","line":{"journal":2}}', "journal", 2),
        ('{"call":"c1","line":{"journal":1}}', "context", None),
        ('{"call":"c","line":' * 200 + HEAD.strip() + "}" * 200, "journal", None),
    ],
)
def test_an_unreadable_inner_journal_is_refused_with_its_line(
    line: str, name: str | None, value: str | int | None
) -> None:
    with raises(JournalError, line=2, name=name, value=value):
        Journal.loads(HEAD + line + "\n")


def test_a_provider_that_writes_slashes_into_ids_cannot_name_the_call_of_another_agent() -> None:
    world = World()

    def boss(sent: Composition) -> Any:
        if step(sent) == 0:
            return calling(("pay", {"name": "Mallory"}, "c1/b"), ("clerk", {"input": "Ada"}, "c1"))
        return "done"

    agent = world.agent("boss", boss, tools=[*world.tools(), offered(world.agent("clerk", payer))])
    paused = pause(agent)
    (call,) = paused.calls
    assert "/" not in call.id
    paused = pause(agent, paused.journal, approve={call.id: Denied()})
    agent.resume_sync(paused.journal, approve={"c1/b": True})
    assert world.paid == ["Ada"]


def test_an_agent_that_a_tool_calls_outside_of_any_call_of_the_run_denies() -> None:
    world = World()
    clerk = offered(world.agent("clerk", payer))

    @tool
    async def indirectly() -> str:
        """Ask the clerk."""
        call = ask("Ada").tool_calls[0]
        return str((await clerk.call(call, ToolContext(None, "other", "other"))).content)

    agent = world.agent("boss", lambda sent: calling("indirectly") if step(sent) == 0 else "done", tools=[indirectly])
    assert "no person can be asked" in agent.run_sync("go").messages[2].text and world.paid == []


def test_a_tool_that_passes_its_call_to_an_agent_pauses_with_it() -> None:
    world = World()
    clerk = offered(world.agent("clerk", payer))

    @tool
    async def through(context: ToolContext[Any]) -> str:
        """Ask the clerk."""
        return str((await clerk.call(ask("Ada").tool_calls[0], context)).content)

    agent = world.agent(
        "boss",
        lambda sent: calling(("through", {}, "t")) if step(sent) == 0 else sent.messages[-1].text,
        tools=[through],
    )
    paused = pause(agent)
    assert paused.agents == {"t/b": "through"}
    assert agent.resume_sync(paused.journal, approve={"t/b": True}).output == "Ada is paid: paid Ada"
    assert world.once()


def test_events_name_the_waiting_calls_and_their_agents() -> None:
    world, seen = World(), list[str]()

    def listen(event: Any) -> None:
        path = ""
        while hasattr(event, "event"):
            path, event = f"{path}{event.call_id}/", event.event
        if hasattr(event, "calls"):
            seen.extend(path + call.id for call in event.calls)

    paused = pause(deep(world, "Ada", "Bob"), on_event=listen)
    assert sorted(seen) == [call.id for call in paused.calls] == ["m/c1/b", "m/c2/b"]


async def test_simultaneous_agents_pause_in_any_order_of_their_waits() -> None:
    world = World()

    def slow(sent: Composition) -> Any:
        return payer(sent)

    @tool
    async def nap(seconds: float) -> str:
        """Sleep."""
        await asyncio.sleep(seconds)
        return "slept"

    def napper(sent: Composition) -> Any:
        replies = [calling(("nap", {"seconds": 0.05}, "n")), calling(("pay", {"name": "Nap"}, "b")), "paid"]
        return replies[step(sent)]

    def boss(sent: Composition) -> Any:
        if step(sent) == 0:
            return calling(
                ("clerk", {"input": "Ada"}, "c1"), ("napper", {"input": "x"}, "c2"), ("nap", {"seconds": 0.1})
            )
        return "done"

    def agent() -> Agent[Any, Any]:
        inner = [world.agent("clerk", slow), world.agent("napper", napper, tools=[*world.tools(), nap])]
        return world.agent("boss", boss, tools=[nap, *map(offered, inner)])

    with pytest.raises(Paused) as paused:
        await agent().run("go", run_id="r")
    assert sorted(paused.value.agents) == ["c1/b", "c2/b"]
    assert [result.content for result in paused.value.journal.tool_results] == ["slept"]
    result = await agent().resume(paused.value.journal, approve=dict.fromkeys(paused.value.agents, True))
    assert result.output == "done" and world.paid == ["Ada", "Nap"] and world.once()


async def _raises(call: Any) -> bool:
    raise ValueError("the decider")


def _raise(call: Any) -> bool:
    raise ValueError("the decider")


@pytest.mark.parametrize("decider", [_raise, _raises])
@pytest.mark.parametrize("make", [firm, deep])
def test_a_decider_that_raises_ends_its_run(make: Any, decider: Any) -> None:
    world = World()
    with raises(ValueError, args=("the decider",)) as failed:
        make(world, "Ada", "Bob").run_sync("go", approve=decider)
    journal: Any = failed.value.journal  # type: ignore[attr-defined]
    assert world.paid == [] and make(world, "Ada", "Bob").resume_sync(journal, approve=lambda call: True).output
    assert world.paid == ["Ada", "Bob"] and world.once()


def test_a_missing_agent_or_other_parameters_since_the_pause_end_the_run_with_the_journal() -> None:
    world = World()
    paused = pause(firm(world, "Ada"))
    clerk = world.agent("clerk", payer).as_tool(name="clerk", description="Pays.", argument="question")
    for tools in ([], [clerk]):
        boss = world.agent("boss", lambda sent: "never", tools=tools)
        with raises(JournalError, name="c1") as failed:
            boss.resume_sync(paused.journal, approve={"c1/b": True})
        journal: Any = failed.value.journal
    assert world.paid == [] and world.asked["boss"] == 1
    assert firm(world, "Ada").resume_sync(journal, approve={"c1/b": True}).output == "Ada is paid: paid Ada"


def test_calls_of_one_agent_with_the_same_id_are_distinguished() -> None:
    world = World()

    def twice(sent: Composition) -> Any:
        return "done" if step(sent) else calling(("pay", {"name": "A"}, "b"), ("pay", {"name": "B"}, "b"))

    clerk = offered(world.agent("clerk", twice))
    boss = world.agent("boss", lambda sent: "ok" if step(sent) else ask("x"), tools=[clerk])
    paused = pause(boss)
    first, second = [call.id for call in paused.calls]
    assert boss.resume_sync(paused.journal, approve={first: False, second: True}).output == "ok"
    assert world.paid == ["B"]


def test_a_rewound_conversation_ends_a_paused_run() -> None:
    session, world = Session(), World()
    paused = pause(firm(world, "Ada"), session=session)
    session.rewind(0)
    with raises(JournalError, name="conversation"):
        firm(world, "Ada").resume_sync(paused.journal, session=session, approve={"c1/b": True})
    assert world.paid == []


async def test_a_listener_or_a_decider_that_hangs_in_an_inner_agent_ends_with_the_run_which_can_resume() -> None:
    async def hang(call: Any) -> bool:
        await asyncio.Event().wait()
        return True

    world = World()
    with pytest.raises(LimitExceeded) as over:
        await firm(world, "Ada", limits=Limits(seconds=0.1)).run("go", approve=hang)
    assert world.paid == [] and valid(over.value.messages)


def test_a_session_that_is_deleted_during_a_pause_ends_the_run_before_any_payment(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        world, session = World(), memory.session("s")
        paused = pause(firm(world, "Ada"), session=session)
        memory.delete_session("s")
        for opened in (session, memory.session("s")):
            with pytest.raises((StoreError, JournalError)):
                firm(world, "Ada").resume_sync(paused.journal, session=opened, approve={"c1/b": True})
    assert world.paid == []


class Closed(AgentError):
    """A custom error of a program, whose constructor has other parameters than a message."""

    def __init__(self, office: str, *, until: int) -> None:
        super().__init__(f"{office} is closed until {until}")
        self.until = until


@pytest.mark.parametrize("error", [Closed("the bank", until=9), SessionBusy("s"), OutputError("int", "x", "no number")])
def test_an_error_of_an_approver_of_an_inner_call_keeps_its_class_and_attributes(error: AgentError) -> None:
    def approve(call: ToolCall) -> bool:
        raise error

    said = str(error)
    with pytest.raises(type(error)) as caught:
        firm(World(), "Ada").run_sync("go", approve=approve)
    assert str(caught.value) == f"clerk (c1): {said}"
    assert caught.value.journal.agent == "boss"
    arrived = pickle.loads(pickle.dumps(caught.value))
    assert (type(arrived), str(arrived)) == (type(error), str(caught.value))
    assert getattr(arrived, "until", 9) == 9 and getattr(arrived, "text", "x") == "x"
