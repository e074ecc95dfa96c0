"""W8: steps of four workers against one worker, and a page of 100,000 queued runs against a page of 1,000.

The workers are processes on one PostgreSQL database of the extra `dev`. A step is a tool call that waits 200 ms: a
worker with two concurrent runs does at most ten steps per second. The CPU time of the workers contains their idle time.
A page is `Runs.list_runs` on SQLite, the newest fifty runs: all runs, the queued runs, or the runs with a tag, which
only the oldest hundred runs have. A third store has the same 100,000 runs, of which the newer half has finished.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from durable import database
from harness import Figure, figures, interleave, main

from agentkit import Agent, Limits, Message, Runs, ScriptedModel, ToolCall, tool
from agentkit.prompts import Composition, UserInput
from agentkit.runs.run_database import lines_table
from agentkit.runs.run_queue import NewRun, RunQueue
from agentkit.runs.run_record import RunRecord

WAIT = 0.2
"""Seconds that a step waits."""
CONCURRENCY = 2
STEPS = 60
"""Steps of a run."""
SECONDS = 8.0
"""Seconds of a measurement."""
RUNS = 100_000
TAGGED = 100
_TICKS = os.sysconf("SC_CLK_TCK")


@tool
async def wait(number: int) -> int:
    """Wait."""
    await asyncio.sleep(WAIT)
    return number


def reply(sent: Composition) -> Message:
    done = sum(message.role == "assistant" for message in sent.intermediate)
    if done < STEPS:
        return Message("assistant", tool_calls=(ToolCall(f"c{done}", "wait", f'{{"number": {done}}}'),))
    return Message("assistant", "Done.")


def waiter() -> Agent[None, str]:
    model = ScriptedModel.repeat(reply, keep=0)
    return Agent(model, "You wait.", tools=[wait], name="waiter", limits=Limits(steps=STEPS + 1))


def work(url: str) -> None:
    """Execute runs until the standard input is closed."""
    runs = Runs(url)
    runs.add(waiter())
    with runs.worker(concurrency=CONCURRENCY, grace=0):
        print("ready", flush=True)
        sys.stdin.read()


def _steps(runs: Runs) -> int:
    """Return the number of stored tool results."""
    query = sa.select(sa.func.count()).where(lines_table.c.line.startswith('{"effect":"CallTools"'))
    count: int = runs.store.rows.database.work(lambda connection: connection.execute(query).scalar_one())
    return count


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _throughput(url: str, workers: int) -> tuple[float, float]:
    """Return the steps per second, and the CPU milliseconds of the workers per step."""
    runs = Runs(url)
    agent = waiter()
    runs.add(agent)

    async def start() -> list[str]:
        count = workers * CONCURRENCY * 2  # more runs than places: no worker is idle at the end
        return [(await agent.start("Wait.")).run_id for _ in range(count)]

    ids = asyncio.run(start())
    command = [sys.executable, __file__, "--work", url]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(workers)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        time.sleep(1.5)  # all places are taken
        begun, before, cpu = time.monotonic(), _steps(runs), sum(_cpu_seconds(each.pid) for each in processes)
        time.sleep(SECONDS)
        steps, seconds = _steps(runs) - before, time.monotonic() - begun
        cpu = sum(_cpu_seconds(each.pid) for each in processes) - cpu
    finally:
        for run_id in ids:
            runs.store.rows.cancel(run_id)
        for process in processes:
            process.communicate("", 60)
    runs.close()
    return steps / seconds, 1000 * cpu / steps


def workers(rounds: int) -> Iterable[Figure]:
    """Measure one worker and four workers, in turn."""
    best: dict[int, tuple[float, float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="durable", ignore_cleanup_errors=True) as folder,
        database(Path(folder), postgres=True) as url,
    ):
        for _ in range(max(1, rounds // 4)):
            for count in (1, 4):
                best[count] = max(best.get(count, (0.0, 0.0)), _throughput(url, count))
    title = "W8 steps that wait 200 ms"
    yield Figure(title, "1 worker", best[1][0], "steps/s")
    yield Figure(title, "4 workers", best[4][0], "steps/s", best[4][0] / best[1][0])
    yield Figure(f"{title}, CPU of a step", "1 worker", best[1][1], "ms")
    yield Figure(f"{title}, CPU of a step", "4 workers", best[4][1], "ms", best[4][1] / best[1][1])


def _stored(url: str, count: int, finished_from: int) -> Runs:
    """Return stored runs, of which the newer runs have finished, and the oldest runs have a tag."""
    runs = Runs(url)
    queue = RunQueue(runs.store.rows.database, lambda connection, leg: None)
    for start in range(0, count, 2_000):
        records = [_run(at, has_finished=at >= finished_from) for at in range(start, min(count, start + 2_000))]
        queue.add([NewRun(record, "{}\n", "{}") for record in records])
    return runs


def _run(at: int, *, has_finished: bool) -> RunRecord:
    return RunRecord(
        run_id=f"r{at}",
        agent="waiter",
        state="finished" if has_finished else "queued",
        executor="dbos",
        created_at=at,
        updated_at=at,
        input=UserInput(f"Where is parcel {at}?"),
        tags=("vip",) if at < TAGGED else (),
    )


def page(rounds: int) -> Iterable[Figure]:
    """Read fifty runs of each store."""
    lists: dict[str, dict[str, Any]] = {"": {}, ", queued": {"state": "queued"}, ", tag": {"tag": "vip"}}
    counts = {"1,000 queued": (1_000, 1_000), "100,000 queued": (RUNS, RUNS), "50,000 of 100,000": (RUNS, RUNS // 2)}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores: dict[str, Runs] = {}
        for number, (name, (count, finished_from)) in enumerate(counts.items()):
            stores[name] = _stored(f"sqlite:///{folder / str(number)}.db", count, finished_from)
            stack.callback(stores[name].close)

        def read(runs: Runs, wanted: dict[str, Any], n: int) -> None:
            for _ in range(n):
                assert len(asyncio.run(runs.list_runs(**wanted, limit=50))) == 50

        for title, wanted in lists.items():
            works = {name: partial(read, runs, wanted) for name, runs in stores.items()}
            yield from figures(f"page of runs{title}", interleave(works, 10, rounds), unit="ms")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2])
    else:
        main(__doc__, {"workers": workers, "page": page})
