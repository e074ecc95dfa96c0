"""A durable run: started here, executed by a worker, read from any process."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel
from typer.testing import CliRunner

from agentkit import (
    Agent,
    ApprovalGiven,
    Approved,
    Composition,
    Denied,
    Limits,
    Message,
    ModelReplied,
    OutputSpec,
    Paused,
    Reply,
    Runs,
    ScriptedModel,
    Session,
    ToolCall,
    ToolContext,
    ToolFinished,
    Usage,
    tool,
)
from agentkit.cli.app import app
from agentkit.durable import DurableError, RunCancelled, RunFailed, RunIdTaken, RunNotFound, WorkerError
from agentkit.errors import AgentDefinitionError, ApprovalError, DepsMismatch
from agentkit.models import ModelUnavailable
from agentkit.prompts import Image, Url
from tests.cases import collected
from tests.raising import raises
from tests.waiting import LONG, eventually

Working = Callable[..., Runs]


def calls(name: str, arguments: str = "{}", id: str = "c1") -> Message:
    return Message("assistant", tool_calls=(ToolCall(id, name, arguments),))


class Till:
    """An agent that pays after an approval, and the number of its payments."""

    def __init__(self, **options: Any) -> None:
        self.paid: list[tuple[int, str]] = []

        @tool(approval="always")
        def pay(amount: int, context: ToolContext[None]) -> str:
            """Pay a bill."""
            self.paid.append((amount, context.idempotency_key))
            return f"paid {amount}"

        def reply(sent: Composition) -> Message:
            if not len(sent.intermediate):
                return calls("pay", '{"amount": 30}')
            return Message("assistant", sent.intermediate[-1].text)

        self.agent = Agent(ScriptedModel.repeat(reply), "You pay.", tools=[pay], name="till", **options)


async def test_a_run_starts_here_and_returns_the_result_of_the_worker(working: Working) -> None:
    model = ScriptedModel([Reply(Message("assistant", "Four."), Usage(20, 2))])
    agent = Agent(model, "You add.", name="sums")
    runs = working(agent)
    handle = await agent.start("2 + 2?", run_id="sum-1", tenant="acme")
    ended = await handle.result(timeout=LONG)
    assert (ended.output, ended.steps, ended.finish_reason, ended.usage) == ("Four.", 1, "stop", Usage(20, 2))
    assert [message.text for message in ended.messages] == ["2 + 2?", "Four."]
    info = await runs.handle("sum-1").info()
    assert (info.state, info.agent, info.tenant, info.attempts) == ("finished", "sums", "acme", 1)
    assert [one.run_id for one in await runs.list_runs(agent="sums", tenant="acme")] == ["sum-1"]
    assert await runs.list_runs(tenant="other") == []


async def test_the_same_id_and_input_is_the_same_run_and_another_input_is_an_error(working: Working) -> None:
    agent = Agent(ScriptedModel(["One."]), "You count.", name="counter")
    working(agent)
    first = await agent.start("Count.", run_id="r")
    again = await agent.start("Count.", run_id="r")
    assert (await first.result(timeout=LONG)).output == (await again.result(timeout=LONG)).output == "One."
    # A new version of the agent, such as after an upgrade, does not repeat the run.
    runs = agent.runs
    assert runs is not None
    runs.add(agent.with_changes(instructions="You count well.", tools=[tool(lambda: 1, name="one", description="1.")]))
    later = await runs.start("counter", "Count.", run_id="r")
    assert (await later.result(timeout=LONG)).output == "One."
    for options in ({"user_input": "Count again."}, {"locale": "de"}, {"tags": ["vip"]}):
        with raises(RunIdTaken, run_id="r"):
            await runs.start("counter", **{"user_input": "Count.", "run_id": "r", **options})


async def test_a_call_is_decided_by_any_id_of_the_model(working: Working) -> None:
    ids = ["\0", "\ud800", "caf\u00e9", "a\\x00'"]
    asked = Message("assistant", tool_calls=tuple([ToolCall(id, "ask", "{}") for id in ids]))
    ask = tool(lambda: "yes", name="ask", description="Asks.", approval="always")
    agent = Agent(ScriptedModel([asked, "Done."]), tools=[ask], name="asker")
    working(agent)
    handle = await agent.start("Go.")
    with pytest.raises(Paused) as paused:
        await handle.result(timeout=LONG)
    assert sorted(call.id for call in paused.value.calls) == sorted(ids)
    for id in ids:
        await handle.approve(id)
    assert (await handle.result(timeout=LONG)).output == "Done."


class City(BaseModel):
    name: str


async def test_a_typed_answer_has_its_type_in_the_process_that_waits(working: Working) -> None:
    agent = Agent(ScriptedModel(['{"name": "Bern"}']), "Name one.", output=City, name="cities")
    runs = working(agent)
    handle = await agent.start("A city.", run_id="r")
    assert (await handle.result(timeout=LONG)).output == City(name="Bern")
    elsewhere = Runs(str(runs.store.url))
    assert (await elsewhere.handle("r").result(timeout=LONG)).output == {"name": "Bern"}
    elsewhere.close()


@pytest.mark.parametrize("source", [b"\x89PNG\r\n", Url("https://example.com/a.png")])
async def test_an_image_is_the_answer_of_a_durable_run(working: Working, source: Any) -> None:
    image = Image(source, media_type="image/png")
    agent = Agent(ScriptedModel([Message("assistant", content=(image,))]), "Draw.", output=Image, name="draws")
    working(agent)
    handle = await agent.start("A cat.")
    assert (await handle.result(timeout=LONG)).output == image


def test_runs_without_their_library_are_an_immediate_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dbos", None)
    with raises(DurableError, name="dbos"):
        Runs("sqlite:///runs.db")


async def test_a_paused_run_is_listed_approved_once_and_continued(working: Working) -> None:
    till = Till()
    runs = working(till.agent)
    handle = await till.agent.start("Pay the bill of 30.")
    with pytest.raises(Paused) as paused:
        await handle.result(timeout=LONG)
    assert [call.id for call in paused.value.calls] == ["c1"]
    assert till.paid == []
    (info,) = await runs.list_runs(state="waiting")
    assert [(call.call_id, call.tool, call.arguments) for call in info.waiting] == [("c1", "pay", '{"amount": 30}')]
    with raises(ApprovalError, name="approve", value="c9"):
        await handle.approve("c9")
    with raises(ApprovalError, name="approve", value="c9"):  # several decisions: all of them are applied or none
        await handle.decide({"c1": Approved(), "c9": Denied()})
    for call in ("c1", None):
        with raises(ApprovalError, name="arguments"):
            await handle.approve(call, {"amount": "x"})
    wrong: list[Any] = [{1: Approved()}, {}, [], "c1", None]
    for decisions in wrong:
        with raises(ApprovalError, name="decisions"):
            await handle.decide(decisions)
    with raises(DurableError, name="pay (c1)"):
        await handle.resume()
    decided = await asyncio.gather(
        handle.approve("c1", {"amount": 20}, by="ada"),
        runs.handle(handle.run_id).deny("c1", "no", by="bob"),
        return_exceptions=True,
    )
    assert [type(one) for one in decided if one is not None] == [ApprovalError]
    ended = await handle.result(timeout=LONG)
    denied = "pay was not called: it was denied: no"
    assert (ended.output, len(till.paid)) in [("paid 20", 1), (denied, 0)]
    assert await runs.list_runs(state="waiting") == []


async def test_a_call_without_a_decision_in_time_is_denied(working: Working) -> None:
    till = Till()
    working(till.agent, approval_timeout=0.1)
    handle = await till.agent.start("Pay.")
    while (info := await handle.info()).state != "finished":
        assert info.state in ("waiting", "queued", "running")
        await asyncio.sleep(0.05)
    assert "it was not decided in time" in (await handle.result()).output
    assert till.paid == []


@pytest.mark.parametrize("call", ["c1", None])
async def test_a_decision_after_its_time_is_refused_when_no_worker_runs(runs: Runs, url: str, call: str | None) -> None:
    till = Till()
    runs.add(till.agent, approval_timeout=600)
    with runs.worker(grace=0):
        handle = await till.agent.start("Pay.", run_id="late")
        with pytest.raises(Paused):
            await handle.result(timeout=LONG)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        database.execute("UPDATE agentkit_decisions SET expires_at = expires_at - 601")
    for decision in (Approved(), Denied("no")):
        with raises(ApprovalError, name="approve", value="c1"):
            await handle.decide({call: decision} if call else {None: decision}, by="late")
    assert [waiting.decision for waiting in (await handle.info()).waiting] == [None]
    with runs.worker(grace=0):
        while (await handle.info()).state != "finished":
            await asyncio.sleep(0.05)
    assert "it was not decided in time" in (await handle.result()).output
    assert till.paid == []


async def test_a_database_error_fails_no_run_and_the_worker_starts_the_run_again(
    working: Working, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agentkit.durable.takeover._MIN_SECONDS_ORPHANED", 0.5)
    agent = Agent(ScriptedModel.repeat("ok"), "Be quick.", name="quick")
    runs = working(agent, worker={"lease": 1.0})
    failing = ["no table"]

    def fail(_: Any, __: Any, statement: str, *rest: Any) -> None:
        if failing[-1] in statement:
            raise sa.exc.OperationalError(statement, None, sqlite3.OperationalError("disk I/O error"))

    sa.event.listen(runs.store.engine, "before_cursor_execute", fail)

    def missed() -> int:
        return caplog.text.count("run r: the database does not respond")

    handle = await agent.start("Go.", run_id="r", delay=0.5)
    for table in ("agentkit_runs", "agentkit_decisions"):  # the first table that is read, and a later table
        failing.append(table)
        seen = missed()
        await eventually(lambda seen=seen: missed() > seen)  # type: ignore[misc]
    failing.append("no table")
    assert (await handle.result(timeout=LONG)).output == "ok"
    assert [entry.effect for entry in (await handle.journal()).entries].count("CallModel") == 1


async def test_a_failed_run_reports_its_error_and_resumes_without_repeated_calls(working: Working) -> None:
    looked: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        looked.append("once")
        return "nothing"

    model = ScriptedModel([calls("look"), ModelUnavailable("gone", model="m"), "Nothing new."])
    agent = Agent(model, "You look.", tools=[look], name="looker")
    runs = working(agent)
    handle = await agent.start("News?")
    with raises(RunFailed, kind="ModelUnavailable", message="m: gone") as failed:
        await handle.result(timeout=LONG)
    assert [message.role for message in failed.value.messages] == ["user", "assistant", "tool"]
    assert [one.error for one in await runs.list_runs(state="failed")] == [("ModelUnavailable", "m: gone")]
    await handle.resume()
    assert (await handle.result(timeout=LONG)).output == "Nothing new."
    assert looked == ["once"]


async def test_a_cancelled_run_stops_in_the_middle_of_a_tool_and_can_be_resumed(working: Working) -> None:
    begun, ended = asyncio.Event(), list[str]()
    here = asyncio.get_running_loop()

    @tool(timeout=600)
    async def linger() -> str:
        """Take long."""
        here.call_soon_threadsafe(begun.set)
        try:
            await asyncio.sleep(0 if ended else 600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "done"

    model = ScriptedModel.repeat(lambda sent: Message("assistant", "ok") if len(sent.intermediate) else calls("linger"))
    agent = Agent(model, "You wait.", tools=[linger], name="waiter")
    working(agent)
    handle = await agent.start("Wait.")
    await asyncio.wait_for(begun.wait(), LONG)
    await handle.cancel()
    with pytest.raises(RunCancelled):
        await handle.result(timeout=LONG)
    while not ended:
        await asyncio.sleep(0.05)
    await handle.resume()
    assert (await handle.result(timeout=LONG)).output == "ok"


async def test_the_call_of_a_run_that_was_cancelled_and_deleted_immediately_ends(working: Working) -> None:
    ended: asyncio.Queue[str] = asyncio.Queue()
    began = asyncio.Event()

    @tool(timeout=600)
    async def hang() -> str:
        """Take long."""
        loop.call_soon_threadsafe(began.set)
        try:
            await asyncio.sleep(600)
        finally:
            loop.call_soon_threadsafe(ended.put_nowait, "ended")
        return "too late"

    loop = asyncio.get_running_loop()
    agent = Agent(ScriptedModel([Message("assistant", tool_calls=(ToolCall("c1", "hang", "{}"),))]), tools=[hang])
    runs = working(agent)
    handle = await agent.start("Go.")
    await asyncio.wait_for(began.wait(), LONG)
    await handle.cancel()
    assert await runs.delete(handle.run_id) == 1
    assert await asyncio.wait_for(ended.get(), LONG) == "ended"


async def test_a_cancelled_run_resumes_although_its_call_has_not_ended(working: Working) -> None:
    begun = list[str]()

    @tool(timeout=600)
    async def linger() -> str:
        """Take long, the first time."""
        begun.append("linger")
        await asyncio.sleep(600 if len(begun) == 1 else 0)
        return "done"

    model = ScriptedModel.repeat(lambda sent: Message("assistant", "ok") if len(sent.intermediate) else calls("linger"))
    agent = Agent(model, "You wait.", tools=[linger], name="waiter")
    working(agent)
    handle = await agent.start("Wait.")
    await eventually(lambda: begun)
    await handle.cancel()
    await handle.resume()
    assert (await handle.result(timeout=LONG)).output == "ok"
    assert len(begun) == 2


async def test_a_paused_run_can_be_cancelled(working: Working) -> None:
    till = Till()
    runs = working(till.agent)
    handle = await till.agent.start("Pay.")
    with pytest.raises(Paused):
        await handle.result(timeout=LONG)
    await handle.cancel()
    with pytest.raises(RunCancelled):
        await handle.result(timeout=LONG)
    assert await runs.list_runs(state="waiting") == []
    with pytest.raises(ApprovalError):
        await handle.approve("c9")


async def test_workflows_of_dbos_in_a_tool_are_no_steps_of_the_run_which_resumes_from_its_journal(
    working: Working,
) -> None:
    from dbos import DBOS

    @DBOS.workflow(name="of a tool")
    def double(number: int) -> int:
        return number * 2

    @tool
    def work() -> str:
        """Work."""
        return f"{DBOS.run_step({'name': 'own'}, lambda: 1)} {DBOS.start_workflow(double, 4).get_result()}"

    def reply(sent: Composition) -> Message:
        step = len([message for message in sent.intermediate if message.role == "assistant"])
        return (calls("work", id="w"), calls("ask", id="a"), calls("work", id="x"), Message("assistant", "Done."))[step]

    ask = tool(lambda: "yes", name="ask", description="Asks.", approval="always")
    agent = Agent(ScriptedModel.repeat(reply), tools=[work, ask], name="worker")
    working(agent)
    handle = await agent.start("Go.")
    with pytest.raises(Paused):
        await handle.result(timeout=LONG)
    await handle.approve()
    ended = await handle.result(timeout=LONG)
    assert [message.text for message in ended.messages if message.role == "tool"] == ["1 8", "yes", "1 8"]
    assert await handle.inside() == []


async def test_events_follow_the_run_and_are_the_events_of_the_journal(working: Working) -> None:
    till = Till()
    working(till.agent)
    handle = await till.agent.start("Pay.")
    kinds = [type(event) async for event in handle.events(follow=True)]
    assert kinds == [ModelReplied]
    await handle.approve()
    await handle.result(timeout=LONG)
    events = [event async for event in handle.events()]
    assert [type(event) for event in events] == [ModelReplied, ApprovalGiven, ToolFinished, ModelReplied]
    assert isinstance(events[2], ToolFinished) and events[2].result.message.text == "paid 30"


async def test_runs_of_one_session_are_executed_in_order_and_one_at_a_time(working: Working) -> None:
    session, at_once, most = Session(), 0, 0

    async def answer(sent: Composition) -> Message:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.05)
        at_once -= 1
        return Message("assistant", f"to {sent.user.text}")

    agent = Agent(Slow(answer), "You answer.", name="talker")
    working(agent, sessions=lambda name: session)
    handles = [await agent.start(str(number), session=session) for number in range(4)]
    for handle in handles:
        await handle.result(timeout=LONG)
    asked = [message.text for message in session.conversation if message.role == "user"]
    assert (asked, most) == (["0", "1", "2", "3"], 1)


async def test_runs_of_one_session_keep_their_order_if_the_clocks_of_their_starters_differ(
    runs: Runs, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, ahead = Session(), Runs(url)
    agent = Agent(ScriptedModel.repeat("ok"), name="talker")
    for each in (ahead, runs):
        each.add(agent, sessions=lambda name: session)
    now = time.time
    handles = []
    for number in range(4):
        with monkeypatch.context() as clock:
            if number % 2 == 0:
                clock.setattr(time, "time", lambda: now() + 100)
            handles.append(await (ahead, runs)[number % 2].start(agent, str(number), session=session))
    with runs.worker(poll=0.1, grace=0):
        for handle in handles:
            await handle.result(timeout=LONG)
    assert [message.text for message in session.conversation if message.role == "user"] == ["0", "1", "2", "3"]
    ahead.close()


class Slow(ScriptedModel):
    def __init__(self, answer: Any) -> None:
        super().__init__(["unused"])
        self._answer = answer

    async def request(self, composition: Composition, **_: Any) -> Reply:
        return Reply(await self._answer(composition), Usage(1, 1))


async def test_a_queued_run_reports_that_the_worker_of_its_agent_is_silent(runs: Runs) -> None:
    agent = Agent(ScriptedModel.repeat("ok"), name="quick")
    runs.add(agent, version="1")
    handle = await agent.start("Go.")
    runs.store.workers.add("w1", [("quick", "1")], lease=0.0, host="host", pid=1)
    problem = (await handle.info()).problem
    assert problem == "worker w1 is silent: it was stopped, or cannot write to the database: see its log"
    runs.store.workers.end("w1", "dead")
    assert "no worker has version '1' of agent 'quick': start a worker" in str((await handle.info()).problem)


async def test_a_run_continues_with_its_version_or_reports_that_no_worker_has_it(runs: Runs, url: str) -> None:
    old, new = Agent(ScriptedModel(["old"]), "One.", name="a"), Agent(ScriptedModel(["new"]), "Two.", name="a")
    runs.add(old)
    handle = await old.start("Hello")
    elsewhere = Runs(url)
    elsewhere.add(new)
    with elsewhere.worker(poll=0.1, grace=0):
        fresh = await new.start("Hello")
        assert (await fresh.result(timeout=LONG)).output == "new"
        info = await handle.info()
        assert info.state == "queued"
        assert info.problem is not None and f"no worker has version {info.version!r} of agent 'a'" in info.problem
        with pytest.raises(TimeoutError):
            await handle.result(timeout=0.2)
    with runs.worker(poll=0.1, grace=0):
        assert (await handle.result(timeout=LONG)).output == "old"
    elsewhere.close()


def test_the_version_of_an_agent_depends_on_the_input_of_the_model_and_not_on_its_name(runs: Runs) -> None:
    def versions(*agents: Agent[Any, Any]) -> list[str]:
        for agent in agents:
            runs.add(agent)
        return [added.version for added in runs.agents.all]

    def look(name: str) -> str:
        """Look."""
        return name

    same = [Agent(ScriptedModel(["x"]), "One.", name=name) for name in ("a", "b")]
    others = [
        Agent(ScriptedModel(["x"]), "Two.", name="c"),
        Agent(ScriptedModel(["x"]), "One.", tools=[look], name="d"),
        Agent(ScriptedModel(["x"]), "One.", output=City, name="e"),
    ]
    found = versions(*same, *others)
    assert found[0] == found[1]
    assert len(set(found)) == 4


async def test_a_run_that_can_never_start_is_refused_before_anything_is_stored(runs: Runs) -> None:
    agent = Agent(ScriptedModel(["x"]), "One.", name="a")
    with raises(AgentDefinitionError, name="a"):
        await agent.start("Hello")
    runs.add(agent)
    with raises(AgentDefinitionError, name="version"):
        runs.add(Agent(ScriptedModel(["x"]), "One.", name="a"))
    with raises(DurableError, name="run_id, tenant, priority, delay") as wrong:
        await agent.start("Hello", run_id="a\n", tenant="t" * 300, priority=0, delay=-1)
    assert "delay=-1" in str(wrong.value)
    with raises(AgentDefinitionError, name="session", value="memory"):
        await agent.start("Hello", session=Session())
    with raises(DurableError, name="agent", value="b"):
        await runs.start("b", "Hello")
    with pytest.raises(RunNotFound):
        await runs.handle("nothing").info()
    with raises(DurableError, name="state", value="done"):
        await runs.list_runs(state="done")  # type: ignore[arg-type]

    @tool
    def needs(context: ToolContext[int]) -> str:
        """Need something."""
        return ""

    with pytest.raises(DepsMismatch):
        runs.add(Agent(ScriptedModel(["x"]), tools=[needs], name="needy"))
    assert await runs.list_runs() == []


@pytest.mark.parametrize(
    "options",
    [{"tenant": None}, {"tenant": 0}, {"user": None}, {"run_id": ""}, {"run_id": 0}, {"delay": True}],
)
async def test_an_empty_option_or_an_option_of_another_type_starts_no_run(runs: Runs, options: dict[str, Any]) -> None:
    agent = Agent(ScriptedModel(["x"]), "One.", name="a")
    runs.add(agent)
    with raises(DurableError, name=next(iter(options))):
        await agent.start("Hello", **options)
    assert await runs.list_runs() == []


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), "5", True, 0])
def test_an_invalid_approval_timeout_is_refused(runs: Runs, seconds: Any) -> None:
    with raises(AgentDefinitionError, name="approval_timeout"):
        runs.add(Agent(ScriptedModel(["x"]), name="a"), approval_timeout=seconds)


def test_an_invalid_number_of_a_worker_is_refused(runs: Runs) -> None:
    runs.add(Agent(ScriptedModel(["x"]), name="a"))
    failures: list[str] = []
    for name in ["lease", "grace", "poll", "concurrency"]:
        for value in [float("inf"), float("nan"), "5", True, None, -1]:
            with collected(failures, name, value), raises(WorkerError, name=name):
                runs.worker(**{name: value})
    assert failures == []


@pytest.mark.parametrize(
    ("url", "name"), [("mysql://x/y", "url"), ("sqlite://", "url.database"), ("runs.db", "url"), (3, "url")]
)
def test_a_database_that_cannot_store_runs_is_refused(url: Any, name: str) -> None:
    with raises(DurableError, name=name):
        Runs(url)


def test_a_sqlite_file_accepts_one_worker_and_a_process_runs_one_worker(runs: Runs, url: str) -> None:
    runs.add(Agent(ScriptedModel(["x"]), name="a"))
    with runs.worker(grace=0), raises(WorkerError, name="worker"):
        runs.worker().start()
    with raises(WorkerError, name="lease, poll, concurrency"):
        runs.worker(lease=0, poll=0, concurrency=0)
    with raises(WorkerError, name="agents"):
        Runs(url).worker()


async def test_a_limit_ends_a_durable_run_like_any_run(working: Working) -> None:
    look = tool(lambda: "nothing yet", name="look", description="Looks.")
    agent = Agent(
        ScriptedModel.repeat(calls("look")), tools=[look], limits=Limits(steps=2, on_limit="return"), name="busy"
    )
    working(agent)
    ended = await (await agent.start("News?")).result(timeout=LONG)
    assert (ended.finish_reason, ended.steps) == ("limit", 2)


async def test_an_answer_without_a_json_form_fails_the_run_by_name(working: Working) -> None:
    spec = OutputSpec(City, output_validator=lambda city: object())
    agent = Agent(ScriptedModel(['{"name": "Bern"}']), output=spec, name="things")
    working(agent)
    with raises(RunFailed, kind="JournalError"):
        await (await agent.start("One.")).result(timeout=LONG)


async def test_answers_and_errors_are_stored_without_the_characters_that_a_database_refuses(working: Working) -> None:
    odd = "half of a pair: \ud800, none: \0"

    def reply(sent: Composition) -> str:
        if sent.user.text == "fail":
            raise RuntimeError(odd)
        return odd

    agent = Agent(ScriptedModel.repeat(reply), name="odd")
    working(agent)
    assert (await (await agent.start("answer")).result(timeout=LONG)).output == "half of a pair: ?, none: \0"
    with raises(RunFailed, kind="RuntimeError"):
        await (await agent.start("fail")).result(timeout=LONG)


async def test_the_result_of_a_run_contains_the_long_answer_that_lists_omit(
    working: Working,
) -> None:
    long = "x" * 20_000
    agent = Agent(ScriptedModel.repeat(lambda sent: sent.user.text), name="long")
    working(agent)
    ended = await (await agent.start(long)).result(timeout=LONG)
    assert ended.output == long and (ended.steps, ended.finish_reason) == (1, "stop")


@pytest.mark.long
async def test_a_list_of_runs_with_long_answers_uses_no_memory_for_them(working: Working) -> None:
    long = "x" * 5_000_000
    agent = Agent(ScriptedModel.repeat(long), name="long")
    runs = working(agent)
    handles = [await agent.start("Go.") for _ in range(3)]
    for handle in handles:
        assert (await handle.result(timeout=LONG)).output == long
    tracemalloc.start()
    try:
        listed = await runs.list_runs()
        info = await handles[0].info()
        assert tracemalloc.get_traced_memory()[1] < len(long)
    finally:
        tracemalloc.stop()
    assert [one.state for one in (*listed, info)] == ["finished"] * 4


async def test_ended_runs_are_deleted_completely_and_other_runs_stay(working: Working) -> None:
    till = Till()
    runs = working(till.agent)
    done, paused = await till.agent.start("Pay.", run_id="done"), await till.agent.start("Pay.", run_id="paused")
    for handle in (done, paused):
        with pytest.raises(Paused):
            await handle.result(timeout=LONG)
    await done.deny()
    await done.result(timeout=LONG)
    assert await runs.delete(["done", "paused"]) == 1
    assert [info.run_id for info in await runs.list_runs()] == ["paused"]
    assert not runs.store.rows.has("done") and runs.store.rows.calls("done") == []


@pytest.mark.long
async def test_runs_that_ended_before_a_time_are_deleted_and_unfinished_runs_stay(
    working: Working, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit.durable.retention._PAGE", 2)
    till, quick = Till(), Agent(ScriptedModel.repeat("ok"), "Be quick.", name="quick")
    runs = working(till.agent, quick)
    for number in range(5):
        await quick.start("Go.", run_id=f"quick-{number}", tenant=("acme", "other")[number % 2])
    paused = await till.agent.start("Pay.", run_id="paused", tenant="acme")
    for info in await runs.list_runs():
        with suppress(Paused):
            await runs.handle(info.run_id).result(timeout=LONG)
    await quick.start("Go.", run_id="later", delay=3600)

    def delete(*words: str) -> Any:
        return CliRunner().invoke(app, ["runs", "delete", *words, "--url", url, "--json"])

    assert json.loads(delete("--older-than", "1").stdout) == {"deleted": 0, "left": 0}
    assert json.loads(delete("--older-than", "0", "--tenant", "other").stdout) == {"deleted": 2, "left": 0}
    refused = delete("quick-0", "nothing")
    assert refused.exit_code == 1 and "unknown run 'nothing'" in refused.stderr
    assert len(await runs.list_runs()) == 5
    assert json.loads(delete("quick-0", "later").stdout) == {"deleted": 1, "left": 1}
    assert await runs.delete_ended(timedelta(0)) == 2
    assert sorted(info.run_id for info in await runs.list_runs()) == ["later", "paused"]
    await paused.deny()
    assert (await paused.result(timeout=LONG)).finish_reason == "stop"
    for days in (timedelta(-1), 3):
        with raises(DurableError, name="older_than"):
            await runs.delete_ended(days)  # type: ignore[arg-type]
    assert delete().exit_code == delete("quick-1", "--older-than", "1").exit_code == 2
