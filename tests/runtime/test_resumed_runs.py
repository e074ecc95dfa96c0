"""Runs that resume from a journal: decisions and limits apply, errors keep the journal, a file has one writer."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from agentkit import (
    Agent,
    Approved,
    Denied,
    Journal,
    LimitExceeded,
    Limits,
    Message,
    Paused,
    Reply,
    ScriptedModel,
    Session,
    Usage,
    tool,
)
from agentkit.errors import ApprovalError, JournalError, RunBusy, SessionBusy
from agentkit.memory import Memory
from agentkit.testing import Delayed
from tests.raising import raises
from tests.runtime.scripts import calling

PAY = calling(("pay", {"amount": 30}, "c1"))


def paying(paid: list[int], approval: Any = "always") -> Any:
    @tool(approval=approval)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        await asyncio.sleep(0.01)
        return f"paid {amount}"

    return pay


def paused(session: Any = None, **options: Any) -> Journal:
    with pytest.raises(Paused) as found:
        Agent(ScriptedModel([PAY]), tools=[paying([])]).run_sync("go", session=session, **options)
    journal: Journal = found.value.journal
    return journal


def replied(message: Message | str, tokens: int) -> Reply:
    return Reply(message if isinstance(message, Message) else Message("assistant", message), Usage(tokens, 0))


@pytest.mark.parametrize("tools", [[paying([], "never")], []])
def test_a_decision_about_a_removed_tool_or_a_tool_without_approval_is_not_ignored(tools: list[Any]) -> None:
    later = Agent(ScriptedModel(["done"]), tools=tools)
    with raises(ApprovalError, name="approve", value="pay (c1)"):
        later.resume_sync(paused(), approve={"c1": Denied("no")})


@pytest.mark.parametrize(
    "answer",
    [Approved("x"), Approved({"amount": object()}), Approved([("amount", 3)]), Denied(5)],  # type: ignore[arg-type]
)
def test_an_answer_of_an_approver_that_is_not_a_decision_is_refused(answer: Any) -> None:
    paid: list[int] = []
    with raises(ApprovalError, name="pay (c1)"):
        Agent(ScriptedModel([PAY]), tools=[paying(paid)]).run_sync("go", approve=lambda call: answer)
    assert paid == []


def test_an_invalid_approver_is_refused_before_any_request() -> None:
    model = ScriptedModel([PAY])
    with raises(ApprovalError, name="approve", value="bool"):
        Agent(model, tools=[paying([])]).run_sync("go", approve=True)  # type: ignore[arg-type]
    assert not model.requests


def test_a_resume_that_fails_immediately_keeps_the_journal_and_the_messages() -> None:
    session = Session()
    journal = paused(session)

    def busy(call: Any) -> Denied:
        with pytest.raises(SessionBusy) as found:
            Agent(ScriptedModel([]), tools=[paying([])]).resume_sync(journal, session=session)
        assert found.value.journal.dumps() == journal.dumps() and found.value.messages == journal.messages
        return Denied("no")

    Agent(ScriptedModel(["ok"]), tools=[paying([])]).resume_sync(journal, session=session, approve=busy)


@pytest.mark.parametrize("order", [[0, 3, 1, 2], [0, 2], [0, 2, 3]])
def test_a_journal_without_its_first_lines_in_order_is_refused(order: list[int]) -> None:
    session = Session()
    lines = paused(session).dumps().splitlines(keepends=True) * 2
    with raises(JournalError, line=2):
        Agent(ScriptedModel([])).resume_sync(Journal.loads("".join([lines[at] for at in order])), session=session)


def test_a_value_that_is_not_a_journal_or_a_file_is_refused() -> None:
    journal, agent = paused(), Agent(ScriptedModel([]))
    for given, kind in ((journal.dumps(), "str"), (Paused([]), "Paused")):
        with raises(JournalError, name="journal", value=kind):
            agent.resume_sync(given)  # type: ignore[arg-type]
    with raises(JournalError, name="journal", value="Journal"):
        agent.run_sync("go", journal=journal)  # type: ignore[arg-type]


def test_a_run_beyond_a_lower_limit_of_steps_ends_immediately() -> None:
    session, model = Session(), ScriptedModel.repeat(PAY)
    with pytest.raises(LimitExceeded):
        Agent(model, tools=[paying([], "never")], limits=Limits(steps=5)).run_sync("go", session=session)
    with pytest.raises(LimitExceeded):
        Agent(model, tools=[paying([], "never")], limits=Limits(steps=3)).run_sync(None, session=session)
    assert len(model.requests) == 5


def test_a_run_that_returned_at_a_limit_returns_when_it_is_resumed() -> None:
    limits = Limits(steps=2, on_limit="return")
    agent = Agent(ScriptedModel.repeat(PAY), tools=[paying([], "never")], limits=limits)
    first = agent.run_sync("go")
    again = agent.resume_sync(first.journal)
    assert again.limit is not None and (again.messages, again.steps) == (first.messages, 2)


def test_inner_agents_use_the_remaining_tokens_of_the_paused_run() -> None:
    asked = ScriptedModel.repeat(replied(calling("missing"), 30))
    ask = Agent(asked, name="inner").as_tool(name="ask", description="Asks.")

    def outer(*script: Reply) -> Agent[Any, Any]:
        return Agent(ScriptedModel(script), tools=[paying([]), ask], limits=Limits(tokens=300))

    with pytest.raises(Paused) as found:
        outer(replied(PAY, 250)).run_sync("go")
    with pytest.raises(LimitExceeded) as ended:
        outer(replied(calling(("ask", {"input": "x"}, "c2")), 20)).resume_sync(
            found.value.journal, approve=lambda call: True
        )
    assert len(asked.requests) == 2 and ended.value.usage.input_tokens == 330


async def test_one_run_at_a_time_has_its_journal_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    runs = [Agent(ScriptedModel([Delayed(0.05, "yes")])).run("go", journal=path) for _ in range(3)]
    ended = await asyncio.gather(*runs, return_exceptions=True)
    assert sum([isinstance(one, JournalError) for one in ended]) == 2
    assert len(Journal.read(path).messages) == 2


async def test_a_file_that_two_tasks_resume_at_once_is_continued_once(tmp_path: Path) -> None:
    path, paid = tmp_path / "run.jsonl", list[int]()
    await asyncio.to_thread(paused, journal=path)
    agents = [Agent(ScriptedModel([Delayed(0.05, "done")]), tools=[paying(paid)]) for _ in range(2)]
    runs = [agent.resume(path, approve={"c1": True}) for agent in agents]
    ended = await asyncio.gather(*runs, return_exceptions=True)
    assert sum([isinstance(one, RunBusy) for one in ended]) == 1 and paid == [30]
    assert (await Agent(ScriptedModel([]), tools=[paying(paid)]).resume(path)).output == "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_forked_during_a_run_does_not_lock_its_journal(tmp_path: Path) -> None:
    path, children = tmp_path / "run.jsonl", list[int]()

    @tool
    def start() -> str:
        """Start a process that stays."""
        children.append(os.fork())
        while not children[-1]:  # the child: until it is killed
            signal.pause()
        return "started"

    agent = Agent(ScriptedModel([calling("start"), OSError("gone")]), tools=[start])
    try:
        with raises(OSError, args=("gone",)):
            agent.run_sync("go", journal=path)
        assert Agent(ScriptedModel(["done"]), tools=[start]).resume_sync(path).output == "done"
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_retried_run_has_its_own_messages_even_between_messages_of_another_writer(tmp_path: Path) -> None:
    with Memory(tmp_path) as mine, Memory(tmp_path) as theirs:

        @tool
        def look() -> str:
            """Look."""
            theirs.session("c").append(Message("user", "their question"), Message("assistant", "their answer"))
            return "seen"

        def tried(*script: Any) -> Any:
            agent = Agent(ScriptedModel(script), tools=[look])
            return agent.run_sync("my question", session=mine.session("c"), run_id="r")

        with raises(OSError, args=("1",)):
            tried(calling("look"), OSError("1"))
        with raises(OSError, args=("2",)) as failed:
            tried(OSError("2"))
        later = Agent(ScriptedModel(["answer"]), tools=[look])
        journal: Any = failed.value.journal  # type: ignore[attr-defined]
        result = later.resume_sync(journal, session=mine.session("c"))
        for found in (result, tried(), tried()):
            assert [message.text for message in found.messages] == ["my question", "", "seen", "answer"]
            assert (found.output, found.steps) == ("answer", 2)
        assert len(mine.session("c").conversation) == 6
