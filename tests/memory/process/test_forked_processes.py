"""Forks with an open memory: the memory belongs to the parent, and the child can open another memory."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from agentkit.memory import IndexUnavailable, Memory, StoreClosed, StoreUnavailable
from agentkit.memory.recall import Point, VectorIndex
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.index.opening import edge_indexes
from agentkit_memory.process.forks import keep
from agentkit_memory.terms.bm25_vectors import document_vector
from tests.raising import raises
from tests.waiting import LONG

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


class Child:
    """Forked process, whose reports the parent reads."""

    def __init__(self, number: int, reports: int, go: int) -> None:
        self.number, self._reports, self._go = number, reports, go

    def report(self) -> str:
        """Return the next report of the child, or fail after a time limit."""
        ready, _, _ = select.select([self._reports], [], [], LONG)
        assert ready, "the child hangs"
        return os.read(self._reports, 10_000).decode()

    def resume(self) -> None:
        os.write(self._go, b".")


@contextmanager
def forked(*acts: Callable[[], object]) -> Iterator[Child]:
    """Fork; the child runs the functions in order, reports each result, and waits for a sign before the next."""
    reports, write_end = os.pipe()
    wait, go = os.pipe()
    number = os.fork()
    if number == 0:
        for act in acts:
            try:
                report = repr(act())
            except BaseException as error:
                report = f"{type(error).__name__}: {error}"
            os.write(write_end, report.encode())
            os.read(wait, 1)
        os._exit(0)
    try:
        yield Child(number, reports, go)
    finally:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        for each in (reports, write_end, wait, go):
            os.close(each)


def texts(memory: Memory, question: str) -> set[str]:
    return {fact.text for fact in memory.recall(question, limit=50).knowledge}


def refused(*acts: Callable[[], object]) -> list[str]:
    """Return the results and errors of calls that were not refused as calls of another process."""
    wrong = []
    for act in acts:
        try:
            wrong.append(repr(act()))
        except StoreClosed as error:
            if f"was opened by process {os.getppid()} before it forked" not in str(error):
                wrong.append(repr(error))
    return wrong


def test_a_child_can_only_close_the_memory_of_its_parent(either: Memory) -> None:
    session = either.session("s")
    session.append(Message("user", "zebra"))
    either.facts.add("zebra one")
    either.recall("zebra")

    def child() -> list[str]:
        wrong = refused(
            lambda: either.recall("zebra"),
            lambda: either.facts.add("zebra two"),
            lambda: either.session("s"),
            lambda: session.append(Message("user", "heron")),
            lambda: session.refresh(),
            either.admin.verify,
            either.admin.repair,
            either.worker().drain,
            lambda: asyncio.run(either.run(either.recall, "zebra")),
        )
        either.close()
        either.close()
        gc.collect()
        return wrong

    with forked(child) as other:
        assert other.report() == "[]"
        either.facts.add("zebra three")
        assert texts(either, "zebra") == {"zebra one", "zebra three"}
        session.append(Message("user", "eel"))
        assert either.admin.verify().ok
    assert texts(either, "zebra") == {"zebra one", "zebra three"}


def test_objects_of_the_parent_are_not_garbage_collected() -> None:
    held = Child(0, 0, 0)
    alive = weakref.ref(held)
    keep(held)
    del held
    gc.collect()
    assert alive() is not None


def test_the_parent_opens_its_index_again_while_the_child_lives(home: Path) -> None:
    memory = Memory(home)
    memory.facts.add("zebra")
    memory.recall("zebra")
    with forked(lambda: None) as other:
        other.report()
        memory.close()
        with Memory(home) as memory:
            recall = memory.recall("zebra")
            assert recall.knowledge and not recall.degraded and memory.admin.verify().ok


def test_a_memory_of_the_child_is_complete_after_the_parent_closes_its_memory(home: Path) -> None:
    memory = Memory(home)
    memory.facts.add("zebra one")
    memory.worker().drain()
    own: list[Memory] = []

    def open_another() -> object:
        own.append(Memory(home))
        own[0].facts.add("zebra two")
        with raises(IndexUnavailable, name="owner"):
            own[0].admin.verify()
        return texts(own[0], "zebra") == {"zebra one", "zebra two"} and len(own[0].recall("zebra").degraded)

    def write() -> object:
        own[0].facts.add("zebra three")
        recall = own[0].recall("zebra")
        return len(recall.knowledge), recall.degraded, own[0].admin.verify().ok

    with forked(open_another, write) as other:
        assert other.report() == "1"
        assert texts(memory, "zebra") == {"zebra one", "zebra two"}  # the owner indexed it
        memory.close()
        other.resume()
        assert other.report() == "(3, (), True)"
    with Memory(home) as memory:
        assert texts(memory, "zebra") == {"zebra one", "zebra two", "zebra three"} and memory.admin.verify().ok


def locks_of(*roots: object) -> list[Any]:
    """Return the locks in objects of this project, at any depth."""
    kinds = (type(threading.Lock()), type(threading.RLock()))
    waiting, seen, locks = [*roots], set[int](), list[Any]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType):
            continue
        seen.add(id(one))
        if isinstance(one, kinds):
            locks.append(one)
        elif isinstance(one, dict | list | tuple) or type(one).__module__.startswith("agentkit"):
            waiting += gc.get_referents(one)
    return locks


def test_locks_of_threads_of_the_parent_do_not_block_the_child(home: Path, tmp_path: Path) -> None:
    memory = Memory(home)
    session = memory.session("s")
    session.append(Message("user", "zebra"))
    memory.worker().drain()
    probe, let_go, holding = StoreProbe(memory), threading.Event(), threading.Event()
    locks = locks_of(memory, session, probe.index)
    assert len(locks) > 5

    def hold() -> None:
        with probe.transaction() as connection:
            connection.exec_driver_sql("DELETE FROM recall_logs")
            held = [lock for lock in locks if lock.acquire(timeout=0.1)]
            holding.set()
            let_go.wait(2 * LONG)
            for lock in held:
                lock.release()

    def child() -> list[str]:
        wrong = refused(
            lambda: memory.recall("zebra"),
            lambda: session.append(Message("user", "heron")),
            lambda: probe.index,
            lambda: asyncio.run(memory.run(memory.recall, "zebra")),
        )
        memory.close()
        with raises(StoreUnavailable, name="fork"):
            Memory(home)
        with Memory(tmp_path / "elsewhere") as other:
            other.facts.add("zebra")
            return wrong + list(other.recall("zebra").degraded)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert holding.wait(LONG)
        with forked(child) as other:
            assert other.report() == "[]"
    finally:
        let_go.set()
        thread.join()
    assert memory.admin.verify().ok
    memory.close()


def test_an_index_belongs_to_the_process_that_opened_it(tmp_path: Path) -> None:
    index: VectorIndex = edge_indexes(tmp_path)("bm25", 0)
    name = "00000000-0000-4000-8000-000000000001"
    points = [Point(name, 1, 1, document_vector("zebra"), None)]
    index.upsert(points)

    def child() -> list[str]:
        wrong = refused(index.clear, index.flush, index.count, lambda: index.upsert(points))
        index.close()
        return wrong

    with forked(child) as other:
        assert other.report() == "[]"
        with pytest.raises(IndexUnavailable):
            edge_indexes(tmp_path)("bm25", 0)  # the child has not released it
        index.flush()
    assert list(index.versions()) == [(name, 1)]
    index.close()


def test_a_child_that_ends_normally_does_not_change_the_memory_of_the_parent(home: Path) -> None:
    code = """
import gc, os, sys
from agentkit_memory import Memory
memory = Memory(sys.argv[1])
memory.facts.add("zebra one")
memory.recall("zebra")
child = os.fork()
if not child:
    del memory
    gc.collect()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
memory.facts.add("zebra two")
assert len(memory.recall("zebra").knowledge) == 2 and memory.admin.verify().ok
os._exit(0)  # without closing: what is in the log must be there
"""
    subprocess.run([sys.executable, "-c", code, str(home)], check=True, timeout=60)
    with Memory(home) as memory:
        assert texts(memory, "zebra") == {"zebra one", "zebra two"} and memory.admin.verify().ok
