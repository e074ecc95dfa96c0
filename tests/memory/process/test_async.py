"""Async methods of a memory: the event loop does not wait for the store."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from agentkit.memory import HeadMoved, InvalidArgument, Memory, StoreClosed, StoredSession
from agentkit.prompts import Message
from agentkit_memory.process.embedder_calls import EmbedderCalls
from tests.raising import raises
from tests.waiting import LONG


async def test_each_operation_of_a_memory_can_be_awaited(either: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    session = await either.run(either.session, "s")
    await either.run(session.append, Message("user", "hello"), key="k")
    await either.run(either.ingest, docs)
    assert [found.text for found in await either.run(either.recall, "zebra", limit=1)] == ["zebra"]
    fact = await either.run(either.facts.add, "a fact", valid_from=1.0)
    assert fact.valid_from == 1.0 and len(either.session("s").conversation) == 1


async def test_the_loop_continues_while_the_database_is_locked(home: Path) -> None:
    with Memory(home) as memory, closing(sqlite3.connect(home / "memory.db", isolation_level=None)) as other:
        session = memory.session("s")
        session.append(Message("user", "first"))
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(memory.run(session.append, Message("user", "hello")))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not writing.done()  # the loop ran, and this thread still has the lock
        other.execute("ROLLBACK")
        assert len(await writing) == 2


async def test_an_exception_is_raised_in_the_awaiting_task(memory: Memory) -> None:
    mine, theirs = memory.session("s"), memory.session("s")
    theirs.append(Message("user", "a"))
    with pytest.raises(HeadMoved):
        await memory.run(mine.append, Message("user", "b"))


async def test_a_cancelled_caller_is_resumed_after_the_write_has_ended(memory: Memory) -> None:
    session = memory.session("s")
    begun, resume = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        resume.wait(LONG)
        session.append(Message("user", "hello"))

    task = asyncio.create_task(memory.run(slow))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.sleep(0.02)
    assert not task.done()
    resume.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(session.conversation) == 1


async def test_a_call_that_is_cancelled_before_its_start_does_not_start(memory: Memory) -> None:
    resume = threading.Event()
    blocked = [asyncio.create_task(memory.run(resume.wait, LONG)) for _ in range(8)]
    await asyncio.sleep(0.01)
    late = asyncio.create_task(memory.run(memory.facts.add, "hello"))
    await asyncio.sleep(0.01)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    resume.set()
    await asyncio.gather(*blocked)
    assert memory.facts.list() == ()


async def test_a_write_that_fails_after_its_caller_is_cancelled_is_ignored(memory: Memory) -> None:
    begun, resume = threading.Event(), threading.Event()

    def failing() -> None:
        begun.set()
        resume.wait(LONG)
        raise ValueError("this is ignored")

    task = asyncio.create_task(memory.run(failing))
    while not begun.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.sleep(0)
    resume.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_thread_has_the_context_variables_of_the_caller(memory: Memory) -> None:
    who = contextvars.ContextVar("who", default="nobody")
    who.set("me")
    assert await memory.run(who.get) == "me"


async def test_a_closed_memory_is_a_typed_error_in_async_code(home: Path) -> None:
    memory = Memory(home)
    session = memory.session("s")
    await memory.run(memory.close)
    with pytest.raises(StoreClosed):
        await memory.run(session.append, Message("user", "hello"))


async def test_many_tasks_append_to_many_conversations(either: Memory) -> None:
    async def talk(name: str) -> None:
        session = await either.run(either.session, name)
        for number in range(5):
            await either.run(session.append, Message("user", f"{name}{number}"))

    await asyncio.gather(*(talk(str(name)) for name in range(20)))
    for name in range(20):
        assert [each.text for each in either.session(str(name)).conversation] == [f"{name}{n}" for n in range(5)]


class Waited:
    """Embedder that can block forever, and ignore its cancellation."""

    model = "waited-1"

    def __init__(self, stubborn: bool = False) -> None:
        self.stubborn = stubborn
        self.slow = False
        self.asked = threading.Event()
        self.ended = threading.Event()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.slow:
            self.asked.set()
            try:
                await asyncio.sleep(600)
            finally:
                self.ended.set()
                if self.stubborn:
                    await asyncio.sleep(600)
        return [[1.0, float(len(text))] for text in texts]


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("waits_for", ["a question", "what is indexed"])
def test_closing_a_memory_ends_the_wait_for_an_async_embedder(home: Path, waits_for: str, stubborn: bool) -> None:
    embedder = Waited(stubborn)
    memory = Memory(home, embedder=embedder)
    memory.facts.add("zebra")
    memory.worker().drain()
    embedder.slow = True
    if waits_for == "what is indexed":
        memory.facts.add("heron")
    told: list[BaseException | None] = []

    def recall() -> None:
        try:
            memory.recall("a zebra")
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=recall, daemon=True)
    thread.start()
    assert embedder.asked.wait(LONG)
    memory.close()
    thread.join(60)
    assert not thread.is_alive()
    assert [type(error) for error in told] == [StoreClosed]
    assert embedder.ended.wait(LONG)  # it was cancelled, and has completed its cleanup
    embedder = Waited()
    with Memory(home, embedder=embedder) as memory:
        assert memory.admin.verify().failing == 0  # the closed memory is not a failure of a text
        memory.worker().drain()
        assert not memory.recall("heron").degraded and memory.admin.verify().ok


def test_a_closed_loop_does_not_start_another_loop() -> None:
    before = {*threading.enumerate()}
    calls = EmbedderCalls()
    calls.close()
    with pytest.raises(StoreClosed):
        calls.result(asyncio.sleep(0))
    assert {*threading.enumerate()} <= before


async def test_async_methods_are_equivalent_to_the_sync_methods(either: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    assert (await either.aingest(docs)).added
    session = await either.asession("s")
    assert len(await session.aappend(Message("user", "heron"), key="k")) == 1
    fork = await session.afork("other", at=1)
    await fork.aappend(Message("user", "newt"))
    assert [each.message.text for each in await fork.apage(limit=1)] == ["newt"]
    assert [each.text for each in await session.aredact(1)] == ["[redacted]"]
    assert len(await fork.arefresh()) == 2 and len(await fork.arewind(1)) == 1
    assert [each.text for each in await session.aedit(1, "otter")] == ["otter"]
    assert [found.text for found in await either.arecall("zebra", limit=1)] == ["zebra"]
    assert await either.adelete_session("s") and not await either.adelete_session("s")
    assert (await either.aerase("local")).complete
    with raises(InvalidArgument, name="session"):
        await either.asession("")


def test_async_methods_have_docstrings_and_the_same_arguments() -> None:
    for owner, names in ((Memory, ("recall", "ingest", "erase")), (StoredSession, ("append", "fork", "page"))):
        for name in names:
            for_async = getattr(owner, f"a{name}")
            assert inspect.signature(for_async) == inspect.signature(getattr(owner, name))
            assert for_async.__doc__ == getattr(owner, name).__doc__
            assert (for_async.__name__, inspect.iscoroutinefunction(for_async)) == (f"a{name}", True)
