"""Cost of stored things: bytes, statements and CPU time of a turn, a recall, a chunk, a user, a run and a model step.

    python benchmarks/costs.py [--postgres] [--json] [--number 2000]

The figures are the inputs of `scale.py` and of docs/scale.md. Bytes are the growth of the database and of the index,
divided by the number of things; CPU time is the time of this process, without the database server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from durable import database

from agentkit import Agent, Message, Runs, ScriptedModel, ToolCall, tool
from agentkit_memory import Memory, Scope
from memory import sentence

WORDS_OF_TURN, WORDS_OF_CHUNK = 25, 170
STEPS = 3
"""Model calls of a measured run: two with a tool call, and the answer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one thing."""

    thing: str
    bytes: float
    """Bytes in the database."""
    index_bytes: float
    """Bytes in the index of the memory."""
    statements: float
    """SQL statements, also of background work."""
    cpu_ms: float
    """CPU time of this process in milliseconds."""


@tool
def look(name: str) -> str:
    """Look for a person."""
    return f"{name} is there, as the register of the city shows, and has been there since the first of May."


def _reply(sent: Any) -> Message:
    done = sum(message.role == "assistant" for message in sent.intermediate)
    if done < STEPS - 1:
        return Message("assistant", tool_calls=(ToolCall(f"c{done}", "look", '{"name": "Ada"}'),))
    return Message("assistant", "Ada has been there since the first of May.")


class _Meter:
    """Measures bytes, statements and CPU time of works on one database."""

    def __init__(self, url: str, index: Path) -> None:
        self._url, self._index = url, index
        self._file = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else None
        self._statements = 0
        self.costs: list[Cost] = []
        if self._file is None:
            sa.event.listen(sa.Engine, "before_cursor_execute", self._count)
        else:
            # SQLite: prepared statements run without SQLAlchemy.
            sa.event.listen(sa.Pool, "connect", lambda connection, _: connection.set_trace_callback(self._count))

    def _count(self, *_: Any) -> None:
        self._statements += 1

    def measure(self, thing: str, number: int, work: Callable[[], object]) -> None:
        """Run a work that creates or reads `number` things."""
        stored, indexed = self._stored(), _size(self._index)
        statements, cpu = self._statements, time.process_time()
        work()
        cpu, statements = time.process_time() - cpu, self._statements - statements
        grown = (self._stored() - stored) / number, (_size(self._index) - indexed) / number
        self.costs.append(Cost(thing, *grown, statements / number, 1e3 * cpu / number))

    def _stored(self) -> int:
        """Return the bytes of the database."""
        if self._file is not None:
            with closing(sqlite3.connect(self._file)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return self._file.stat().st_size
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        return int(row[0])


def _size(folder: Path) -> int:
    return sum(each.lstat().st_blocks * 512 for each in folder.rglob("*"))


def _memory_costs(url: str, folder: Path, number: int) -> list[Cost]:
    draw = random.Random(3)
    index = folder / "index"
    target: Any = url if url.startswith("postgresql") else folder / "memory"
    meter = _Meter(url if url.startswith("postgresql") else f"sqlite:///{folder / 'memory' / 'memory.db'}", index)
    with Memory(target, index=index, scope="acme") as memory:
        session = memory.session("first")
        texts = iter([sentence(draw, WORDS_OF_TURN) for _ in range(2 * number)])

        def index_all() -> None:
            memory.worker().drain()

        def turns() -> None:
            for _ in range(number):
                session.append(Message("user", next(texts)))
            index_all()

        def users() -> None:
            for user in range(number // 10):
                scoped = memory.within(Scope("acme", user=f"user-{user}"))
                scoped.session("s").append(Message("user", "Hello"))
            index_all()

        def recalls() -> None:
            for _ in range(number // 10):
                memory.recall(sentence(draw, 6), limit=10)

        def chunks() -> None:
            docs = folder / "docs"
            docs.mkdir()
            for file in range(4):
                parts = [f"# Part {part}\n\n{sentence(draw, WORDS_OF_CHUNK)}\n" for part in range(number // 4)]
                (docs / f"{file}.md").write_text("\n".join(parts))
            memory.ingest(docs)

        meter.measure("turn of 25 words", number, turns)
        meter.measure("user with one conversation", number // 10, users)
        meter.measure("chunk of 170 words", number, chunks)
        meter.measure("recall", number // 10, recalls)
    return meter.costs


def _run_costs(url: str, folder: Path, number: int) -> list[Cost]:
    meter = _Meter(url, folder / "none")
    runs = Runs(url)
    agent = Agent(ScriptedModel.repeat(_reply, keep=0), "You look.", tools=[look], name="looker")
    runs.add(agent)

    async def execute() -> None:
        handles = [await agent.start(f"Is Ada there? {at}", tenant="acme") for at in range(number)]
        for handle in handles:
            await handle.result()

    with runs.worker(grace=0):
        meter.measure("warm", 20, lambda: asyncio.run(_few(agent)))
        meter.measure(f"durable run of {STEPS} model calls", number, lambda: asyncio.run(execute()))
    runs.close()
    return meter.costs[1:]


async def _few(agent: Agent[Any, Any]) -> None:
    for _ in range(20):
        await (await agent.start("Is Ada there?")).result()


@contextmanager
def measured(*, postgres: bool, number: int) -> Iterator[list[Cost]]:
    """Yield the costs on SQLite or PostgreSQL."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="costs", ignore_cleanup_errors=True)))
        url = stack.enter_context(database(folder, postgres=postgres))
        yield [*_memory_costs(url, folder, number), *_run_costs(url, folder, number // 10)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--number", type=int, default=2000, help="number of turns; of the other things, a part of it")
    options = parser.parse_args()
    with measured(postgres=options.postgres, number=options.number) as costs:
        if options.json:
            print(json.dumps([asdict(cost) for cost in costs]))
            return
        for cost in costs:
            print(
                f"{cost.thing:<34}{cost.bytes:>9.0f} B {cost.index_bytes:>7.0f} B index "
                f"{cost.statements:>7.1f} statements {cost.cpu_ms:>8.3f} ms CPU"
            )


if __name__ == "__main__":
    main()
