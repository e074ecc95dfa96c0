"""W7: what a whole recall takes: by words, beside an embedder that hangs, and for many clients at once.

CPU time is that of the thread that asks: what is indexed or logged meanwhile has threads of its own.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from harness import Figure, main

from agentkit_memory import Memory
from agentkit_prompts.context.messages import Message
from memory import sentence

WARM, ASKED = 20, 40
CLIENTS, SECONDS = 200, 3.0
WAITING = 10_000
"""Items of other tenants that wait for the embedder."""


class Hanging:
    """An embedder that answers until it is told to hang."""

    model = "hanging"
    question_timeout = 0.005

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.goes_on.wait()
        return [[1.0, len(text) / 100] for text in texts]


def keep_turns(memory: Memory, count: int, random_: random.Random) -> None:
    """Keep messages of 25 words in twenty conversations, and index them."""
    for conversation in range(20):
        session = memory.session(f"s{conversation}")
        for _ in range(count // 2000):
            session.append(*[Message("user", sentence(random_, 25)) for _ in range(100)])
    memory.worker().drain()  # what waits for the index is not reported where there is no model
    memory.recall("x")


def taken(memory: Memory, rounds: int, random_: random.Random, clock: Callable[[], float]) -> list[float]:
    """Return how long recalls took, in milliseconds, the shortest first."""
    found = []
    for number in range(WARM + ASKED * rounds):
        question = sentence(random_, 6)
        start = clock()
        memory.recall(question, limit=10)
        if number >= WARM:
            found.append((clock() - start) * 1e3)
    return sorted(found)


@contextmanager
def of_turns(count: int) -> Iterator[Memory]:
    """Yield a memory of so many turns."""
    with tempfile.TemporaryDirectory() as folder, Memory(folder) as memory:
        keep_turns(memory, count, random.Random(5))
        yield memory


@contextmanager
def of_chunks(count: int) -> Iterator[Memory]:
    """Yield a memory of so many chunks of documents."""
    random_ = random.Random(2)
    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder, "docs")
        docs.mkdir()
        for number in range(4):
            parts = [f"# Part {part}\n\n{sentence(random_, 120)}\n" for part in range(count // 4)]
            (docs / f"{number}.md").write_text("\n".join(parts), "utf-8")
        with Memory(Path(folder, "store")) as memory:
            memory.ingest(docs)
            memory.worker().drain()
            yield memory


def by_words(rounds: int) -> Iterator[Figure]:
    """The best ten, by words alone."""
    for what, goal, opened in (
        ("10,000 turns", 2.0, of_turns(10_000)),
        ("100,000 turns", 2.5, of_turns(100_000)),
        ("10,000 chunks", 1.5, of_chunks(10_000)),
    ):
        with opened as memory:
            found = taken(memory, rounds, random.Random(7), time.thread_time)
        median = found[len(found) // 2]
        yield Figure("W7 recall by words", what, median, "ms", goal=f"at most {goal:g} ms", met=median <= goal)


def beside(rounds: int) -> Iterator[Figure]:
    """Recalls while an embedder hangs, and 10,000 items of other tenants wait for it; wall time."""
    random_ = random.Random(5)
    embedder = Hanging()
    with tempfile.TemporaryDirectory() as folder, Memory(folder, embedder=embedder) as memory:
        keep_turns(memory, 10_000, random_)
        embedder.goes_on.clear()
        try:
            for number in range(WAITING // 1000):
                other = memory.within(f"tenant {number}").session("s")
                for _ in range(10):
                    other.append(*[Message("user", sentence(random_, 25)) for _ in range(100)])
            with memory.worker():  # whose thread hangs too
                found = taken(memory, rounds, random_, time.perf_counter)
                embedder.goes_on.set()  # or the worker never ends
        finally:
            embedder.goes_on.set()
    p95 = found[len(found) * 95 // 100]
    yield Figure("W7 beside a hanging embedder", "p95", p95, "ms", goal="at most 30 ms", met=p95 <= 30)


def clients(rounds: int) -> Iterator[Figure]:
    """Recalls a second in one process, of 200 clients that ask one question after the other."""
    with of_turns(10_000) as memory, ThreadPoolExecutor(CLIENTS) as pool:
        found = []
        for _ in range(rounds):
            until = time.monotonic() + SECONDS

            def ask(client: int, until: float = until) -> int:
                random_ = random.Random(client)
                asked = 0
                while time.monotonic() < until:
                    memory.recall(sentence(random_, 6), limit=10)
                    asked += 1
                return asked

            start = time.perf_counter()
            found.append(sum(pool.map(ask, range(CLIENTS))) / (time.perf_counter() - start))
    median = sorted(found)[len(found) // 2]
    yield Figure("W7 200 clients", "recalls", median, "per s", goal="at least 400", met=median >= 400)


if __name__ == "__main__":
    main(__doc__, {"words": by_words, "beside": beside, "clients": clients})
