"""One run executes in one place at a time, and an agent that plain code runs cannot pause the run around it."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Journal, OutputSpec, Paused, ScriptedModel, Session, tool
from agentkit.errors import ApprovalError, JournalError, RunBusy
from agentkit.memory import Memory
from tests.raising import raises
from tests.runtime.scripts import calling
from tests.waiting import LONG, eventually

PAY = calling(("pay", {"amount": 3}, "c1"))


class Bank:
    """An agent whose tool reports its start, and then waits for an event."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.began, self.go = threading.Event(), threading.Event()

    def agent(self, *script: Any) -> Agent[Any, Any]:
        @tool(approval="always")
        def pay(amount: int) -> str:
            """Pay."""
            self.began.set()
            assert self.go.wait(LONG)
            self.paid.append(amount)
            return "paid"

        return Agent(ScriptedModel(script), tools=[pay], name="bank")

    def paused(self, **options: Any) -> Journal:
        with pytest.raises(Paused) as found:
            self.agent(PAY).run_sync("go", **options)
        journal = found.value.journal
        assert isinstance(journal, Journal)
        return journal


@pytest.mark.parametrize("copied", [False, True])
async def test_a_journal_that_several_tasks_resume_at_once_is_continued_once(copied: bool) -> None:
    bank = Bank()
    journal = await asyncio.to_thread(bank.paused)
    bank.go.set()
    journals = [Journal.loads(journal.dumps()) if copied else journal for _ in range(3)]
    runs = [bank.agent("done").resume(one, approve={"c1": True}) for one in journals]
    ended = await asyncio.gather(*runs, return_exceptions=True)
    busy = [one for one in ended if isinstance(one, RunBusy)]
    assert len(busy) == 2 and bank.paid == [3] and busy[0].run_id == journal.run_id
    assert pickle.loads(pickle.dumps(busy[0])).run_id == journal.run_id
    again = await bank.agent("done").resume(journal, approve={"c1": True})  # free after the end of the first run
    assert again.output == "done"


def test_a_run_in_progress_in_a_thread_or_in_another_process_is_busy(tmp_path: Path) -> None:
    bank, path = Bank(), tmp_path / "run.jsonl"
    journal = bank.paused(journal=path)
    assert journal.file == path
    results: list[Any] = []
    first = threading.Thread(
        target=lambda: results.append(bank.agent("done").resume_sync(journal, approve={"c1": True}))
    )
    first.start()
    assert bank.began.wait(LONG)
    for known in (journal, path, Journal.read(path), Journal.loads(journal.dumps())):
        with pytest.raises(RunBusy):
            bank.agent("done").resume_sync(known, approve={"c1": True})
    with pytest.raises(RunBusy):
        bank.agent("done").run_sync("go", run_id=journal.run_id)
    if hasattr(os, "fork"):
        child = os.fork()
        if not child:
            status = 1
            try:
                bank.go.set()  # a separate event: here the tool does not wait
                bank.agent("done").resume_sync(Journal.read(path), approve={"c1": True})
            except RunBusy:
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
    bank.go.set()
    first.join()
    assert results[0].output == "done" and bank.paid == [3]


def test_a_run_in_a_file_continues_in_the_file_from_any_form_of_its_journal(tmp_path: Path) -> None:
    bank, path = Bank(), tmp_path / "run.jsonl"
    bank.go.set()
    journal = pickle.loads(pickle.dumps(bank.paused(journal=path)))
    with raises(JournalError, name="journal"):
        bank.agent("done").resume_sync(journal, approve={"c1": True}, journal=tmp_path / "other.jsonl")
    result = bank.agent("done").resume_sync(journal, approve={"c1": True}, journal=path)
    assert Journal.read(path).messages == result.messages and result.journal.file == path
    for known in (result.journal, path):
        assert bank.agent().resume_sync(known).output == "done"  # all is done
    with raises(JournalError, value="changed"):
        bank.agent("done").resume_sync(journal, approve={"c1": True})
    path.unlink()
    with raises(JournalError, value="gone"):
        bank.agent("done").resume_sync(result.journal)
    assert bank.paid == [3] and not path.exists()


def test_a_journal_in_memory_that_continues_in_a_file_is_complete_there(tmp_path: Path) -> None:
    bank, path = Bank(), tmp_path / "run.jsonl"
    bank.go.set()
    result = bank.agent("done").resume_sync(bank.paused(), approve={"c1": True}, journal=path)
    assert path.read_text() == result.journal.dumps()
    with raises(JournalError, value="exists"):
        bank.agent("done").resume_sync(bank.paused(), approve={"c1": True}, journal=path)


def test_a_disk_that_was_full_for_some_time_has_each_line_once(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")  # not on Windows
    path, room, ends = tmp_path / "run.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE), [0]

    @tool
    async def fill() -> str:
        """Leave space for a part of a line."""
        ends[0] = path.stat().st_size + 20
        resource.setrlimit(resource.RLIMIT_FSIZE, (ends[0], room[1]))
        return "filled"

    @tool
    async def free() -> str:
        """Make space after a line was cut."""
        await eventually(lambda: path.stat().st_size >= ends[0])
        await asyncio.sleep(0.02)
        resource.setrlimit(resource.RLIMIT_FSIZE, room)
        return "freed"

    agent = Agent(ScriptedModel([calling("fill", "free"), "done"]), tools=[fill, free])
    try:
        result = agent.run_sync("go", journal=path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, room)
    assert path.stat().st_size > ends[0] > 20
    assert path.read_text() == result.journal.dumps()


@pytest.mark.parametrize("stored", [False, True])
def test_a_journal_whose_run_has_continued_since_is_refused(tmp_path: Path, stored: bool) -> None:
    bank = Bank()
    bank.go.set()
    memory = Memory(tmp_path) if stored else None
    session: Any = Session() if memory is None else memory.session("s")
    journal = bank.paused(session=session)
    result = bank.agent("done").resume_sync(journal, approve={"c1": True}, session=session)
    with raises(JournalError, name="step", value=1):
        bank.agent("done").resume_sync(journal, approve={"c1": True}, session=session)
    assert bank.agent().resume_sync(result.journal, session=session).output == "done"
    assert bank.paid == [3] and tuple(session.conversation) == result.messages
    if memory is not None:
        memory.close()


def inner() -> Agent[Any, Any]:
    bank = Bank()
    bank.go.set()
    return bank.agent(PAY, "it is paid")


def asking(how: str) -> Any:
    """Return a tool that runs an agent in plain code."""
    if how == "sync":

        @tool(name="ask")
        def ask_sync() -> str:
            """Ask."""
            return str(inner().run_sync("x").output)

        return ask_sync

    @tool
    async def ask() -> str:
        """Ask."""
        if how == "group":
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(inner().run("x"))
            return str(asked.result().output)
        options: Any = {"approve": lambda call: True} if how == "approved" else {}
        try:
            return str((await inner().run("x", **options)).output)
        except Paused as paused:
            if how != "caught":
                raise
            return f"waits: {paused.calls[0].name}"

    return ask


@pytest.mark.parametrize("how", ["async", "sync", "group"])
def test_an_agent_that_pauses_in_the_code_of_a_tool_ends_the_run_with_the_alternative(how: str) -> None:
    with raises(ApprovalError, name="bank", value="pay (c1)") as found:
        Agent(ScriptedModel([calling("ask"), "done"]), tools=[asking(how)]).run_sync("go")
    error: Any = found.value
    assert isinstance(error.__cause__, Paused) and error.__cause__.journal.agent == "bank"
    assert error.journal.agent == "agent" and error.journal.tool_results == []
    answering = Agent(ScriptedModel(["done"]), tools=[asking("approved")])
    assert answering.resume_sync(error.journal).messages[2].text == "it is paid"


@pytest.mark.parametrize(("how", "shown"), [("approved", "it is paid"), ("caught", "waits: pay")])
def test_an_agent_in_the_code_of_a_tool_can_have_an_approver_and_its_pause_can_be_caught(how: str, shown: str) -> None:
    result = Agent(ScriptedModel([calling("ask"), "done"]), tools=[asking(how)]).run_sync("go")
    assert result.messages[2].text == shown


async def run_inner(_: Any) -> Any:
    return (await inner().run("x")).output


def listening(event: object) -> Any:
    return run_inner(event)


@pytest.mark.parametrize(
    ("options", "run"),
    [
        ({"output": OutputSpec(str, output_validator=run_inner)}, {}),
        ({}, {"approve": run_inner}),
        ({}, {"on_event": listening}),
    ],
)
def test_other_code_of_a_run_cannot_pause_it_either(options: Any, run: Any) -> None:
    bank = Bank()
    with raises(ApprovalError, name="bank", value="pay (c1)") as found:
        Agent(ScriptedModel([PAY, "done"]), tools=bank.agent().tools.values(), name="outer", **options).run_sync(
            "go", **{"approve": lambda call: False, **run}
        )
    assert found.value.journal.agent == "outer" and isinstance(found.value.__cause__, Paused)
