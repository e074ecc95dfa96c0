"""W7: time of a whole recall with an embedder that hangs, and for many concurrent clients."""

from __future__ import annotations

import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from harness import Figure, main

from agentkit_memory import Memory
from agentkit_prompts.context.messages import Message
from memory import sentence

WARM, MEASURED = 20, 40
CLIENTS, SECONDS = 200, 3.0
WAITING = 10_000
"""Number of items of other tenants that wait for the embedder."""


class HangingEmbedder:
    """An embedder that hangs while its event `resume` is not set."""

    model = "hanging"
    question_timeout = 0.005

    def __init__(self) -> None:
        self.resume = threading.Event()
        self.resume.set()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.resume.wait()
        return [[1.0, len(text) / 100] for text in texts]


def append_turns(memory: Memory, count: int, random_: random.Random) -> None:
    """Append messages of 25 words to twenty conversations, and index them."""
    for conversation in range(20):
        session = memory.session(f"s{conversation}")
        for _ in range(count // 2000):
            session.append(*[Message("user", sentence(random_, 25)) for _ in range(100)])
    memory.worker().drain()  # without a model, a recall does not report pending items
    memory.recall("x")


def recall_times(memory: Memory, rounds: int, random_: random.Random, clock: Callable[[], float]) -> list[float]:
    """Return the sorted times of recalls in milliseconds."""
    times = []
    for number in range(WARM + MEASURED * rounds):
        question = sentence(random_, 6)
        start = clock()
        memory.recall(question, limit=10)
        if number >= WARM:
            times.append((clock() - start) * 1e3)
    return sorted(times)


@contextmanager
def memory_of_turns(count: int) -> Iterator[Memory]:
    """Yield a memory of `count` turns."""
    with tempfile.TemporaryDirectory() as folder, Memory(folder) as memory:
        append_turns(memory, count, random.Random(5))
        yield memory


def hanging(rounds: int) -> Iterator[Figure]:
    """Recall while an embedder hangs and 10,000 items of other tenants wait for it; wall time."""
    random_ = random.Random(5)
    embedder = HangingEmbedder()
    with tempfile.TemporaryDirectory() as folder, Memory(folder, embedder=embedder) as memory:
        append_turns(memory, 10_000, random_)
        embedder.resume.clear()
        try:
            for number in range(WAITING // 1000):
                other = memory.within(f"tenant {number}").session("s")
                for _ in range(10):
                    other.append(*[Message("user", sentence(random_, 25)) for _ in range(100)])
            with memory.worker():  # its thread hangs too
                times = recall_times(memory, rounds, random_, time.perf_counter)
                embedder.resume.set()  # otherwise, the worker never stops
        finally:
            embedder.resume.set()
    p95 = times[len(times) * 95 // 100]
    yield Figure("W7 with a hanging embedder", "p95", p95, "ms")


def clients(rounds: int) -> Iterator[Figure]:
    """Count recalls per CPU second of the process: one client, and 200 concurrent clients of the same memory."""
    rates: dict[int, list[float]] = {1: [], CLIENTS: []}
    with memory_of_turns(10_000) as memory, ThreadPoolExecutor(CLIENTS) as pool:
        recalls_per_second(memory, pool, CLIENTS)  # opens the connections
        for _ in range(rounds):
            for count, measured in rates.items():
                measured.append(recalls_per_second(memory, pool, count))
    one, many = [statistics.median(each) for each in rates.values()]
    title = "W7 recalls per CPU second"
    yield Figure(title, "one client", one, "per s")
    yield Figure(title, f"{CLIENTS} clients", many, "per s", many / one)


def recalls_per_second(memory: Memory, pool: ThreadPoolExecutor, count: int) -> float:
    """Return the recalls of `count` concurrent clients per CPU second of this process."""
    until = time.monotonic() + SECONDS

    def recall_until(client: int) -> int:
        random_ = random.Random(client)
        recalls = 0
        while time.monotonic() < until:
            memory.recall(sentence(random_, 6), limit=10)
            recalls += 1
        return recalls

    start = time.process_time()
    return sum(pool.map(recall_until, range(count))) / (time.process_time() - start)


if __name__ == "__main__":
    main(__doc__, {"hanging": hanging, "clients": clients})
