"""Recall without waits: it embeds no passage, writes no row, and waits for no lock, worker or model."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from sqlalchemy import Engine, event

from agentkit.memory import Memory, Scope
from agentkit.memory.recall import Pool, Question, RecallPolicy
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.process.on_demand import OnDemand
from agentkit_memory.recall.candidates import ScoredItem
from tests.memory.recall.queued_facts import queue_facts
from tests.waiting import LONG, until


class Stalling:
    """Embedder that blocks until a test resumes it, for texts and questions.

    It blocks without a limit, so that a recall that waits for it does not pass by chance.
    """

    model = "stalling"

    def __init__(self) -> None:
        self.resume = threading.Event()
        self.resume.set()
        self.hanging = threading.Event()
        self.asked: list[str] = []

    @property
    def question_timeout(self) -> float:
        return LONG if self.resume.is_set() else 0.2

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        if not self.resume.is_set():
            self.hanging.set()
            assert self.resume.wait(2 * LONG)
        return [[1.0, float("boat" in text)] for text in texts]


@pytest.fixture
def stalling() -> Iterator[Stalling]:
    embedder = Stalling()
    yield embedder
    embedder.resume.set()


def within(seconds: float, act: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function in a thread, and fail if it takes longer."""
    with_result: list[Any] = []
    thread = threading.Thread(target=lambda: with_result.append(act(*args, **kwargs)), daemon=True)
    thread.start()
    thread.join(seconds)
    assert with_result, f"it did not return within {seconds} seconds"
    return with_result[0]


@pytest.fixture
def executed() -> Iterator[list[tuple[int, str]]]:
    """Yield the thread and the statement of each execution of SQLite on connections that are opened later.

    The callback is set at the opening: a later call, while another thread uses the connection, can block forever, as
    both threads need the lock of the interpreter and the lock of the connection.
    """
    found: list[tuple[int, str]] = []

    def listen(connection: Any, _: object) -> None:
        connection.set_trace_callback(lambda each: found.append((threading.get_ident(), each)))

    event.listen(Engine, "connect", listen)
    yield found
    event.remove(Engine, "connect", listen)


def statements(executed: list[tuple[int, str]], act: Callable[[], object]) -> list[str]:
    """Return the statements of SQLite that a function executes in this thread."""
    before = len(executed)
    act()
    return [each for thread, each in executed[before:] if thread == threading.get_ident()]


@pytest.mark.long
def test_recall_answers_while_an_embedder_hangs_with_rows_of_another_tenant(home: Path, stalling: Stalling) -> None:
    with Memory(home, embedder=stalling) as memory:
        memory.session("s").append(Message("user", "The heron nests behind the weir."))
        memory.worker().drain()
        queue_facts(memory.within("other"), "heron", 10_000)
        stalling.resume.clear()
        with memory.worker():  # its thread hangs with the embedder
            assert stalling.hanging.wait(LONG)
            stalling.asked.clear()
            for _ in range(40):
                recall = within(LONG, memory.recall, "Where does the heron nest?")
                assert [found.text for found in recall] == ["The heron nests behind the weir."]
                assert "BM25 only" in recall.degraded[0]
            assert stalling.asked == ["Where does the heron nest?"], "asked once, and not again while it hangs"
            within(LONG, memory.session("s").append, Message("user", "It flew off."))
            assert "It flew off." in {found.text for found in within(LONG, memory.recall, "flew").recalled}
            stalling.resume.set()


def test_waiting_items_are_found_by_words_in_their_scope_and_reported(home: Path, stalling: Stalling) -> None:
    with Memory(home, embedder=stalling) as memory:
        memory.session("s").append(Message("user", "The meadow is wide."), Message("user", "The heron eats eels."))
        memory.worker().drain()
        stalling.resume.clear()
        memory.facts.add("A heron is a bird.")
        memory.session("s").append(Message("user", "A heron stood on the boat."))
        recall = within(LONG, memory.recall, "heron", limit=9)
        assert [fact.text for fact in recall.knowledge] == ["A heron is a bird."]
        assert {found.text for found in recall} >= {"The heron eats eels.", "A heron stood on the boat."}
        assert any("2 new items have no vector yet" in why for why in recall.degraded)
        assert within(LONG, memory.within("other").recall, "heron") == ()
        stalling.resume.set()
        memory.worker().drain()
        recall = until(
            lambda: (found := memory.recall("boat", limit=1)).degraded == () and found
        )  # the retried embedding
        assert recall[0].text == "A heron stood on the boat."


def test_recall_embeds_no_passage_and_writes_no_row(
    executed: list[tuple[int, str]], memory: Memory, docs: Path
) -> None:
    (docs / "a.md").write_text("The heron nests behind the weir.")
    memory.ingest(docs)
    memory.recall("heron")
    memory.facts.add("A heron is a bird.")
    memory.session("s").append(Message("user", "The heron eats eels."))
    seen = statements(executed, lambda: memory.recall("heron"))
    assert seen and not [
        each for each in seen if not re.match(r"(?!.*(INSERT|UPDATE|DELETE))\s*(SELECT|WITH)\b", each, re.S)
    ]


@pytest.mark.parametrize("waiting", [False, True])
def test_a_recall_takes_few_statements(
    executed: list[tuple[int, str]], home: Path, stalling: Stalling, waiting: bool
) -> None:
    for embedder, most in ((None, 3), (stalling, 4)):
        with Memory(home / str(most), embedder=embedder) as memory:
            memory.session("s").append(*[Message("user", f"The heron eats eel {number}.") for number in range(9)])
            memory.worker().drain()
            memory.recall("heron")  # the first recall of a tenant also checks its documents
            if waiting:
                stalling.resume.clear()  # the item stays in the queue
                memory.facts.add("A heron is a bird.")
                memory.session("s").append(Message("user", "The heron rests."))
            seen = statements(executed, lambda: memory.recall("heron", limit=3))
            assert 2 <= len(seen) <= most + 2 * waiting, seen
            stalling.resume.set()


def test_a_recall_does_not_wait_for_a_write_lock_of_another_process(home: Path) -> None:
    with Memory(home) as memory:
        memory.session("s").append(Message("user", "The heron eats eels."))
        memory.worker().drain()
    with Memory(home, timeout=2 * LONG) as memory:
        with closing(connect(home / "memory.db", check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            for _ in range(3):
                recall = within(LONG, memory.recall, "heron")
                assert [found.text for found in recall] == ["The heron eats eels."] and recall.degraded == ()
            other.execute("ROLLBACK")
        assert len(memory.recall_logs()) == 3


async def test_an_append_does_not_wait_for_recalls(home: Path) -> None:
    resume = threading.Event()

    class Slow:
        name = "slow"

        def scores(self, question: Any, pool: Any) -> list[float]:
            assert resume.wait(2 * LONG)
            return [0.0] * len(pool)

    from agentkit.memory.recall import RecallPolicy

    with Memory(home) as memory:
        session = memory.session("s")
        session.append(Message("user", "A heron."))
        policy = RecallPolicy("slow", scorers=(Slow(),))
        recalls = [asyncio.create_task(memory.run(memory.recall, "heron", policy=policy)) for _ in range(30)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(memory.run(session.append, Message("user", "hello")), LONG)
        assert not any(task.done() for task in recalls)
        resume.set()
        assert all(await asyncio.gather(*recalls))


def test_recalls_do_not_wait_for_a_slow_ingestion(home: Path, docs: Path, stalling: Stalling) -> None:
    (docs / "a.md").write_text("The heron nests behind the weir.")
    with Memory(home, embedder=stalling) as memory, ThreadPoolExecutor(1) as pool:
        memory.ingest(docs)
        stalling.resume.clear()
        (docs / "b.md").write_text("The stork stands there.")
        ingesting = pool.submit(memory.ingest, docs)
        assert stalling.hanging.wait(LONG)
        for _ in range(3):
            assert within(LONG, memory.recall, "heron")[0].text == "The heron nests behind the weir."
        assert within(LONG, memory.recall, "stork")[0].text == "The stork stands there."
        assert not ingesting.done()
        stalling.resume.set()
        assert ingesting.result().added


def test_an_item_with_a_waiting_newer_version_is_not_found_by_its_old_words(memory: Memory) -> None:
    session = memory.session("s")
    session.append(Message("user", "My card is 4000 1234."), Message("user", "The heron eats eels."))
    memory.worker().drain()
    StoreProbe(memory).pause()  # no item is indexed after this
    session.redact(1, "Something was here.")
    assert memory.recall("card 4000") == ()
    assert memory.recall("something")[0].text == "Something was here."


def test_a_new_item_is_ranked_together_with_items_of_the_index(memory: Memory) -> None:
    session = memory.session("s")
    session.append(*[Message("user", f"The river is long, part {number}.") for number in range(40)])
    session.append(Message("user", "A heron by the river."))
    memory.worker().drain()
    StoreProbe(memory).pause()
    session.append(Message("user", "The heron and the stork by the river."))
    found = memory.recall("heron stork river", limit=3)
    assert [each.text for each in found[:2]] == ["The heron and the stork by the river.", "A heron by the river."]
    memory.worker().drain()
    again = memory.recall("heron stork river", limit=3)
    assert [each.id for each in again][:2] == [each.id for each in found][:2]


def test_closing_a_memory_does_not_wait_for_a_hanging_embedder(home: Path, stalling: Stalling) -> None:
    memory = Memory(home, embedder=stalling)
    memory.session("s").append(Message("user", "The heron eats eels."))
    stalling.resume.clear()
    while not stalling.hanging.wait(0.1):  # no question is embedded while the index opens
        within(LONG, memory.recall, "heron")
    within(LONG, memory.close)
    stalling.resume.set()
    with Memory(home, embedder=stalling) as memory:
        memory.worker().drain()
        assert memory.admin.verify().ok and memory.admin.verify().pending == 0


class Lazy(Stalling):
    """Embedder that computes each vector lazily: as a generator, or as lazy vectors."""

    def __init__(self, lazy_vectors: bool) -> None:
        super().__init__()
        self.lazy_vectors = lazy_vectors

    def embed(self, texts: Sequence[str]) -> Any:
        if self.lazy_vectors:
            return [self.vector(each) for each in texts]
        return (list(self.vector(each)) for each in texts)

    def vector(self, text: str) -> Iterator[float]:
        assert self.resume.wait(2 * LONG)
        yield from (1.0, float("boat" in text))


@pytest.mark.parametrize("lazy_vectors", [False, True])
def test_a_recall_does_not_wait_for_a_lazy_embedder(home: Path, lazy_vectors: bool) -> None:
    lazy = Lazy(lazy_vectors)
    try:
        with Memory(home, embedder=lazy) as memory:
            memory.facts.add("The boat leaves at noon.")
            memory.worker().drain()
            assert memory.recall("boat").degraded == ()
            lazy.resume.clear()
            found = within(LONG, memory.recall, "When does the boat leave?")
            assert [each.text for each in found.knowledge] == ["The boat leaves at noon."]
            assert "no vector of the question within 0.2 seconds" in found.degraded[0]
    finally:
        lazy.resume.set()


class Panic(BaseException):
    """Exception of a model that is written in Rust."""


def test_a_panic_of_a_model_ends_no_recall_and_no_thread(home: Path, stalling: Stalling) -> None:
    panics = threading.Event()
    embed = stalling.embed

    def panicking(texts: Sequence[str]) -> list[list[float]]:
        if panics.is_set():
            raise Panic("index out of bounds")
        return embed(texts)

    stalling.embed = panicking  # type: ignore[method-assign]
    with Memory(home, embedder=stalling) as memory:
        memory.facts.add("The boat leaves at noon.")
        memory.worker().drain()
        panics.set()
        memory.documents.add("The boat is blue.", source="boat")
        found = within(LONG, memory.recall, "boat")
        assert (
            found.documents and found.knowledge and any("Panic: index out of bounds" in each for each in found.degraded)
        )
        until(lambda: memory.admin.verify(sample=0).problems)
        assert "Panic" in next(iter(memory.admin.verify(sample=0).problems.values()))
        panics.clear()
        memory.documents.add("The boat is old.", source="old boat")
        until(lambda: "The boat is old." in stalling.asked)  # by the thread, which continues


def test_a_panic_of_submitted_work_ends_no_thread() -> None:
    done = threading.Event()
    outcomes: list[Callable[[], bool]] = [lambda: bool(done.set()), lambda: (_ for _ in ()).throw(Panic("first"))]
    working = OnDemand("working", lambda: outcomes.pop()())
    working.wake()
    until(lambda: len(outcomes) == 1)
    working.wake()
    assert done.wait(LONG)
    working.stop(LONG)


def test_a_recall_in_an_empty_scope_calls_no_model(home: Path, stalling: Stalling) -> None:
    with Memory(home, embedder=stalling) as memory:
        memory.within(Scope("other")).facts.add("A heron is a bird.")
        memory.worker().drain()
        stalling.asked.clear()
        assert memory.recall("heron") == () and stalling.asked == []


def test_a_wrong_time_limit_for_questions_is_reported(home: Path) -> None:
    class Wrong(Stalling):
        question_timeout = -1.0

    with Memory(home, embedder=Wrong()) as memory:
        memory.facts.add("A heron is a bird.")
        memory.worker().drain()
        recall = memory.recall("heron")
        assert len(recall.knowledge) == 1 and "question_timeout: expected seconds" in recall.degraded[0]


class Meeting:
    """Scorer and reranker that counts concurrent recalls, and can wait for other recalls."""

    name = "meeting"
    rerank_timeout = LONG

    def __init__(self, others: int = 1) -> None:
        self.barrier = threading.Barrier(others)
        self.lock = threading.Lock()
        self.now = self.most = 0

    def scores(self, question: Question, pool: Pool) -> list[float]:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.05)
        with self.lock:
            self.now -= 1
        return [0.0] * len(pool)

    def rerank(self, question: str, candidates: Sequence[ScoredItem]) -> list[float]:
        self.barrier.wait(LONG)
        return [0.0] * len(candidates)


def test_two_recalls_compute_concurrently_and_recalls_that_wait_for_a_model_block_none(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit_prompts.system.concurrency_limit._PATIENCE", 10 * LONG)
    memory.facts.add("zebras are striped")
    memory.recall("zebras")
    meeting = Meeting(6)
    policy = RecallPolicy("meeting", scorers=(meeting,), reranker=meeting)
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(memory.recall, "zebras", policy=policy) for _ in range(6)]
        found = [each.result(LONG) for each in asked]
    assert [(len(each.knowledge), each.degraded) for each in found] == [(1, ())] * 6
    assert 0 < meeting.most <= 2
