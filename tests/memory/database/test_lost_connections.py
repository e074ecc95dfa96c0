"""PostgreSQL: no call fails if its connection is lost before a statement, or at the end of a transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from agentkit.memory import AlreadyUsed, HeadMoved, Memory, Scope, StoreUnavailable
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from tests.effort import thinned
from tests.raising import raises

pytestmark = pytest.mark.long

Call = Callable[[Memory, int], object]
"""Operation of a memory; the number is different in each call."""


def add_document(memory: Memory, number: int) -> object:
    memory.documents.add(f"Heron {number}.\n\n" * 3, source=f"{number}.txt")
    return memory.documents.add(f"An eel, {number}.", source=f"{number}.txt").chunks


def forget_document(memory: Memory, number: int) -> object:
    memory.documents.add("An eel.", source=f"{number}.txt")
    return memory.documents.forget(f"{number}.txt"), memory.documents.get(f"{number}.txt")


def change_facts(memory: Memory, number: int) -> object:
    old = memory.facts.add(f"The heron has {number} eels.")
    new = memory.facts.add(f"The heron has {number + 1} fish.", supersedes=old.id)
    changed = memory.facts.update(new.id, f"The heron ate {number} fish.", metadata={"n": number})
    removed = memory.facts.remove(new.id)
    return old.text[:9], changed.metadata == {"n": number}, removed, memory.facts.get(new.id)


def converse(memory: Memory, number: int) -> object:
    session = memory.session(f"c{number}")
    session.append(Message("user", "Hello"), Message("assistant", "Hi"))
    session.append(Message("user", "Eels?"), key="k")
    session.redact(1)
    return [each.text for each in memory.session(f"c{number}").conversation]


def delete_session(memory: Memory, number: int) -> object:
    memory.session(f"d{number}").append(Message("user", "Hello"))
    return memory.delete_session(f"d{number}"), memory.sessions(name=f"d{number}")


def erase(memory: Memory, number: int) -> object:
    subject = Scope("local", user=f"u{number}")
    memory.within(subject).facts.add("An eel.")
    memory.within(subject).session("s").append(Message("user", "Hello"))
    return memory.erase(subject).found


def expire(memory: Memory, number: int) -> object:
    memory.session(f"e{number}", expires_at=1.0)
    memory.admin.expire(2.0)
    return memory.sessions(name=f"e{number}")


def index(memory: Memory, number: int) -> object:
    memory.facts.add(f"The stork has {number} eels.")
    return memory.worker().drain() > 0, memory.recall(f"stork {number}").degraded, memory.admin.verify(sample=0).ok


CHANGES: list[Call] = [add_document, forget_document, change_facts, converse, delete_session, erase, expire, index]
READS: dict[str, Call] = {
    "recall": lambda memory, _: [each.text for each in memory.recall("heron")],
    "facts.search": lambda memory, _: [each.text for each in memory.facts.search("heron")],
    "facts.list": lambda memory, _: memory.facts.list(limit=1),
    "documents.list": lambda memory, _: memory.documents.list(limit=1),
    "documents.chunks": lambda memory, _: memory.documents.chunks("heron.txt"),
    "conversation": lambda memory, _: list(memory.session("s", branch="fork").conversation),
    "page": lambda memory, _: memory.session("s", load=False).page(limit=2),
    "sessions": lambda memory, _: (memory.sessions(limit=1), memory.newest_sessions(limit=1)),
    "recall_logs": lambda memory, _: memory.recall_logs(limit=1),
    "usage": lambda memory, _: [each.tenant for each in memory.admin.usage()],
    "verify": lambda memory, _: memory.admin.verify().ok,
}


@pytest.fixture
def stored(fresh_postgres: str, tmp_path: Path) -> Iterator[Memory]:
    with Memory(fresh_postgres, index=tmp_path / "index", keep_recalls=0) as memory:
        session = memory.session("s")
        session.append(*[Message("user", f"The heron eats eel {number}.") for number in range(5)])
        session.fork("fork", at=3)
        memory.facts.add("The heron is a bird.")
        memory.documents.add("A heron stands in the reeds.", source="heron.txt")
        memory.worker().drain()
        memory.recall("heron")
        StoreProbe(memory).pause()  # without other clients of the server
        yield memory


@contextmanager
def losing(memory: Memory, address: str, at: int, *, how: str = "statement") -> Iterator[list[int]]:
    """End the connections before statement number `at`, or before or after a commit; yield the events."""
    import psycopg

    engine, seen, lost = StoreProbe(memory).engine, count(), list[int]()

    def end(*_: Any) -> None:
        if next(seen) != at or lost:
            return
        with psycopg.connect(address, autocommit=True) as other:
            others = "FROM pg_stat_activity WHERE pid != pg_backend_pid() AND backend_type = 'client backend'"
            lost.append(len(other.execute(f"SELECT pg_terminate_backend(pid) {others}").fetchall()))
            while other.execute(f"SELECT 1 {others}").fetchall():
                time.sleep(0.002)

    def end_committed(connection: Any) -> None:
        driver = connection.connection.driver_connection
        driver.commit()
        before = len(lost)
        end()
        if len(lost) > before:
            driver.close()  # a driver without writes does not notice it at the commit

    name = "before_cursor_execute" if how == "statement" else "commit"
    listener = end_committed if how == "committed" else end
    event.listen(engine, name, listener)
    try:
        yield lost
    finally:
        event.remove(engine, name, listener)


@pytest.mark.parametrize("name", READS)
def test_a_read_succeeds_if_its_connection_is_lost_before_any_statement(
    stored: Memory, fresh_postgres: str, name: str
) -> None:
    expected, at = READS[name](stored, 0), 0
    for at in count():
        with losing(stored, fresh_postgres, at) as lost:
            assert READS[name](stored, 0) == expected
        if not lost or at == 30:  # a comparison of all points takes many statements
            break
    assert at


@pytest.mark.parametrize(("change", "how"), thinned([*product(CHANGES, ("statement", "commit", "committed"))], 7))
def test_a_write_is_stored_once_if_its_connection_is_lost_at_any_point(
    stored: Memory, fresh_postgres: str, change: Call, how: str
) -> None:
    expected, at = change(stored, 0), 0
    for at in count():
        with losing(stored, fresh_postgres, at, how=how) as lost:
            assert change(stored, at + 1) == expected
        if not lost:
            break
    assert at


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_fork_or_rewind_that_loses_its_connection_at_the_end_has_an_unknown_result(
    stored: Memory, fresh_postgres: str, is_committed: bool
) -> None:
    session, how = stored.session("s"), "committed" if is_committed else "commit"
    with losing(stored, fresh_postgres, 0, how=how), raises(StoreUnavailable, name="unknown"):
        session.fork("other", at=2)
    assert ("other" in [each.name for each in session.branches()]) is is_committed
    if is_committed:
        with pytest.raises(AlreadyUsed):
            session.fork("other", at=2)
    with losing(stored, fresh_postgres, 0, how=how), raises(StoreUnavailable, name="unknown"):
        session.rewind(2)
    if is_committed:
        with pytest.raises(HeadMoved):
            session.append(Message("user", "after the old end"))
    session.append(Message("user", "Continue."))
    assert len(stored.session("s").conversation) == (3 if is_committed else 6)
