"""W7: growth of a memory, next to a full-text table (FTS5) of SQLite: building, bytes, recall and opening.

Both have the same texts of 25 words, written in the same transactions, and the same questions. `--sizes 10000,100000`
are the numbers of turns. The folder of temporary files should be in memory: no disk is measured.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from harness import Figure, main

from agentkit.testing import StoreProbe
from agentkit_memory import Memory, Scope
from agentkit_memory.terms.bm25_vectors import query_vector
from agentkit_prompts.context.messages import Message
from memory import sentence

CONVERSATIONS = 20
BULK = 10
"""Messages of an append, if not one."""
QUESTIONS = 40
HITS = 50
"""Hits of the bare query of the index: a recall fetches about as many."""
_RECALL = """
import sys
from pathlib import Path
from agentkit_memory import Memory
with Memory(sys.argv[1]) as memory:
    for question in sys.argv[2:]:
        memory.recall(question, limit=10)
# `ru_maxrss` contains the memory of the parent at the fork.
status = Path("/proc/self/status").read_text()
print(int(status.split("VmHWM:")[1].split()[0]) / 1024)
"""


def texts_of(count: int) -> list[str]:
    random_ = random.Random(5)
    return [sentence(random_, 25) for _ in range(count)]


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def build(folder: Path, texts: Sequence[str], step: int) -> None:
    """Append messages to twenty conversations, `step` at once, and index them."""
    with Memory(folder) as memory:
        share = max(1, len(texts) // CONVERSATIONS)
        for first in range(0, len(texts), share):
            session = memory.session(f"s{first}")
            own = texts[first : first + share]
            for start in range(0, len(own), step):
                session.append(*[Message("user", text) for text in own[start : start + step]])
        memory.worker().drain()
        memory.recall("x")


def build_table(file: Path, texts: Sequence[str], step: int) -> None:
    """Insert texts into a full-text table, `step` per transaction."""
    connection = connected(file)
    connection.execute("CREATE VIRTUAL TABLE turns USING fts5(text, scope UNINDEXED)")
    for start in range(0, len(texts), step):
        with connection:
            rows = [(text,) for text in texts[start : start + step]]
            connection.executemany("INSERT INTO turns VALUES (?, 1)", rows)
    connection.close()


def connected(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def size_of(path: Path) -> int:
    """Return the bytes that a file, or the files of a folder, take on a disk."""
    return sum(file.stat().st_blocks * 512 for file in [path, *path.rglob("*")] if file.is_file())


def growth(sizes: Sequence[int], _: int) -> Iterator[Figure]:
    """Measure each size once: building takes minutes."""
    times: list[float] = []
    for count in sizes:
        texts = texts_of(count)
        for step in (1, BULK):
            with tempfile.TemporaryDirectory() as folder:
                ours, table = Path(folder, "memory"), Path(folder, "table.db")
                limit = cpu_seconds(partial(build_table, table, texts, step)) / count
                seconds = cpu_seconds(partial(build, ours, texts, step)) / count
                title = f"W7 build {count:,}, by {step}"
                yield Figure(title, "FTS5", limit * 1e6, "µs")
                yield Figure(title, "ours", seconds * 1e6, "µs", seconds / limit)
                if step == BULK:
                    yield from bytes_per_turn(count, ours, table)
                    for figure in recalls(count, ours, table):
                        yield figure
                        if figure.who == "ours":
                            times.append(figure.value)
                    yield from openings(count, ours)
    for count, before, after in zip(sizes[1:], times, times[1:], strict=False):
        yield Figure("W7 recall, growth", f"ours, to {count:,} turns", after, "ms", after / before)


def bytes_per_turn(count: int, ours: Path, table: Path) -> Iterator[Figure]:
    title, size = f"W7 bytes per turn, {count:,}", size_of(ours) / count
    yield Figure(title, "FTS5", size_of(table) / count, "bytes")
    yield Figure(title, "ours", size, "bytes")


def recalls(count: int, ours: Path, table: Path) -> Iterator[Figure]:
    """Recall ten turns per question; the full-text table returns the best ten by BM25."""
    random_ = random.Random(7)
    questions = [sentence(random_, 6) for _ in range(QUESTIONS)]
    connection = connected(table)
    best = "SELECT rowid FROM turns WHERE turns MATCH ? AND scope = 1 ORDER BY bm25(turns) LIMIT 10"

    def search(question: str) -> object:
        return connection.execute(best, (" OR ".join(question.split()),)).fetchall()

    with Memory(ours) as memory:
        samples: dict[str, list[float]] = {"FTS5": [], "Qdrant Edge": [], "ours": []}
        memory.recall("x")
        index, scopes = StoreProbe(memory).index, [StoreProbe(memory.within(Scope("local", user="local"))).scope_number]
        for question in questions:
            samples["FTS5"].append(cpu_seconds(partial(search, question)))
            query = partial(index.query_sparse, query_vector(question), scopes, HITS)
            samples["Qdrant Edge"].append(cpu_seconds(query))
            samples["ours"].append(cpu_seconds(partial(memory.recall, question, limit=10)))
    connection.close()
    limit, edge, seconds = [median(each) for each in samples.values()]
    title = f"W7 recall, {count:,} turns"
    yield Figure(title, "FTS5", limit * 1e3, "ms")
    yield Figure(title, f"bare query of Qdrant Edge, {HITS} hits", edge * 1e3, "ms", edge / limit)
    yield Figure(title, "ours", seconds * 1e3, "ms", seconds / limit)
    command = [sys.executable, "-c", _RECALL, str(ours), *questions]
    peak = float(subprocess.check_output(command, text=True))
    yield Figure(title, "ours, peak", peak, "MiB")


def openings(count: int, ours: Path) -> Iterator[Figure]:
    """Open a store and recall once; the limit is a store with one turn."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder)
        build(small, ["one turn"], 1)
        limit, seconds = [
            median([cpu_seconds(partial(first_recall, each)) for _ in range(5)]) for each in (small, ours)
        ]
    title, ratio = f"W7 opening, {count:,} turns", seconds / limit
    yield Figure(title, "one turn", limit * 1e3, "ms")
    yield Figure(title, "ours", seconds * 1e3, "ms", ratio)


def first_recall(folder: Path) -> None:
    with Memory(folder) as memory:
        memory.recall("bato1 kosk1")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--sizes", default="10000,100000")
    options, sys.argv[1:] = parser.parse_known_args()
    main(__doc__, {"growth": partial(growth, [int(each) for each in options.sizes.split(",")])})
