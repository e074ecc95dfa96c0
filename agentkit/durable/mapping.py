"""`map`: one run for each of many inputs; the answers are written in the order of the inputs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agentkit.durable.added_agents import AddedAgent
from agentkit.durable.map_file import MapFile
from agentkit.durable.stored.durable_store import DurableStore, StartedRun
from agentkit.durable.stored.run_request import PRIORITY, check_name
from agentkit.errors import named_problems
from agentkit.ground.threads import in_thread
from agentkit.run.engine.run_options import MapOptions, StartOptions, check_options
from agentkit.runs.run_errors import DurableError, RunNotFound
from agentkit.runs.run_record import RunsWanted

Result = TypeVar("Result")

_OPTIONS = frozenset(("concurrency", "rate", "tenant", "tenant_concurrency", "priority", "on_progress"))
_PAGE = 500
"""Number of runs that one query reads."""
_MAX_LISTED = 10
"""Maximum number of problems that an error lists."""
_MAX_RUNS = 1_000_000
"""Maximum of concurrent runs, and of runs per second: more than any database can reach."""
_MIN_RATE = 0.000_001
_MIN_WAIT, _MAX_WAIT = 0.05, 1.0
"""Seconds between two reads of the outcomes."""
_LIMITS = ("global_concurrency", "partition_concurrency", "worker_concurrency")
_CONCURRENCY, _POLL = 20, 0.2
"""Concurrency per worker, and polling seconds, of the queue of an agent that no worker has served yet."""

Request = Callable[[Any, StartOptions], StartedRun]
"""Returns the new run of an input."""


@dataclass(frozen=True, slots=True)
class MapReport:
    """Result of a map."""

    total: int
    finished: int
    failed: int
    """Number of runs that failed or were cancelled. After `agentkit runs resume`, another call of the map with another
    file writes the answers of these runs."""
    path: Path
    """One line of JSON for each input, in order: `run_id`, and `output` or `error`."""


async def mapped(
    store: DurableStore,
    added: AddedAgent,
    request: Request,
    inputs: Iterable[Any],
    name: str,
    path: Path,
    options: MapOptions,
) -> MapReport:
    """Start the runs that do not exist yet, and write the outcomes of all runs; see `Agent.map`."""
    check_options("map", options, _OPTIONS)
    runs = await in_thread(lambda: _new_runs(request, inputs, name, options))
    ids = [run.run_id for run in runs]
    progress, wait = options.get("on_progress"), _MIN_WAIT
    with await in_thread(lambda: MapFile(path, ids)) as file:  # opened first: without a file no run starts
        await store.ask(lambda: _start(store, added, runs, options))
        while file.written < len(ids):
            page = ids[file.written : file.written + _PAGE]
            lines = await store.wait_for(partial(_outcomes, store, page))
            file.add(lines)
            if progress is not None and lines:
                progress(file.written, len(ids))
            wait = min(wait * 1.5, _MAX_WAIT)
            if lines:
                wait = _MIN_WAIT
            if file.written < len(ids) and len(lines) < len(page):
                await asyncio.sleep(wait)
    return MapReport(len(ids), len(ids) - file.failed, file.failed, path)


def _new_runs(request: Request, inputs: Iterable[Any], name: str, options: MapOptions) -> list[StartedRun]:
    """Return the new runs of all inputs.

    Raises:
        DurableError: Options are invalid, or inputs cannot be run. The error lists the first problems.
    """
    problems: list[str] = []
    check_name("name", name, problems)
    for option in ("concurrency", "tenant_concurrency"):
        value: Any = options.get(option)
        if value is not None and not (type(value) is int and 1 <= value <= _MAX_RUNS):
            problems.append(f"{option}={value!r:.40}: expected an int from 1 to {_MAX_RUNS:,}, or None")
    rate = options.get("rate")
    if rate is not None and not (type(rate) in (int, float) and _MIN_RATE <= rate <= _MAX_RUNS):
        problems.append(f"rate={rate!r:.40}: expected runs in a second, {_MIN_RATE:f} to {_MAX_RUNS:,}, or None")
    if isinstance(inputs, str | bytes | Mapping):
        problems.append(f"inputs: expected several inputs, got one: {inputs!r:.40}")
    if problems:
        raise DurableError(f"map: {'; '.join(problems)}; nothing was started", **named_problems(problems))
    tenant = options.get("tenant", "")

    def new_run(number: int, user_input: Any) -> StartedRun:
        try:
            tenant_name: Any = tenant
            if callable(tenant):
                tenant_name = tenant(user_input)
            run_options: StartOptions = {
                "run_id": f"{name}/{number}",
                "tenant": tenant_name,
                "priority": options.get("priority", PRIORITY),
            }
            return request(user_input, run_options)
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    functions = ((f"inputs[{number}]", partial(new_run, number, row)) for number, row in enumerate(inputs))
    return all_results(f"map {name!r}", functions)


def all_results(prefix: str, functions: Iterable[tuple[str, Callable[[], Result]]]) -> list[Result]:
    """Return the results of all functions.

    Args:
        prefix: Prefix of the error.
        functions: Pairs of the place of an input, for the error, and a function that returns the result for this input.

    Raises:
        DurableError: Functions raised ValueError or TypeError. The error lists the first problems.
    """
    results: list[Result] = []
    problems: list[str] = []
    for place, function in functions:
        try:
            results.append(function())
        except (ValueError, TypeError) as error:
            problems.append(f"{place}: {error}")
            if len(problems) == _MAX_LISTED:
                problems.append("and maybe more")
                break
    if problems:
        raise DurableError(f"{prefix}: {'; '.join(problems)}; nothing was started", **named_problems(problems))
    return results


def _start(store: DurableStore, added: AddedAgent, runs: Sequence[StartedRun], options: MapOptions) -> None:
    """Set the limits of the queue, and store new runs."""
    rate, limits = options.get("rate"), dict[str, Any]()
    if rate is not None:  # DBOS counts whole runs per period
        limit = max(1, int(rate))
        limits["limiter"] = {"limit": limit, "period": limit / rate}
    limits |= {
        "global_concurrency": options.get("concurrency"),
        "partition_concurrency": options.get("tenant_concurrency"),
    }
    name = f"{added.queue}/map"
    queue, agent_queue = store.client.retrieve_queue(name), store.client.retrieve_queue(added.queue)
    per_worker = _CONCURRENCY
    if agent_queue is not None:
        per_worker = agent_queue.worker_concurrency
    limits["worker_concurrency"] = min(per_worker, options.get("concurrency") or per_worker)
    if queue is None:
        store.client.register_queue(name, polling_interval_sec=_POLL, **limits)
    elif {option: getattr(queue, option) for option in ("limiter", *_LIMITS)} != {"limiter": None, **limits}:
        poll = queue.polling_interval_sec
        store.client.register_queue(name, polling_interval_sec=poll, **limits)
        # Workers read the limits once per polling interval: no run may start under the earlier limits.
        time.sleep(2 * poll)
    store.enqueue(runs)


def _outcomes(store: DurableStore, run_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the outcomes of these runs, up to the first run that has not finished."""
    records = {record.run_id: record for record in store.rows.page(RunsWanted(ids=run_ids, limit=len(run_ids)))}
    lines: list[dict[str, Any]] = []
    for run_id in run_ids:
        record, line = records.get(run_id), dict[str, Any]({"run_id": run_id})
        if record is None:
            line["error"] = {"kind": "RunNotFound", "message": str(RunNotFound(run_id))}
        elif not record.has_ended:
            break
        elif record.state == "finished":
            line |= {"output": record.output, "finish_reason": record.finish_reason}
        else:
            kind, message = record.error or ("RunCancelled", "cancelled")
            line["error"] = {"kind": kind, "message": message}
        lines.append(line)
    return lines
