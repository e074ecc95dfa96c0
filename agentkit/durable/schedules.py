"""Runs that begin by the clock: schedules of DBOS, each of which starts a run of an agent whenever it is due."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from agentkit.durable.added_agents import AddedAgents
from agentkit.durable.durable_errors import RunIdTaken
from agentkit.durable.stored.durable_store import APPLICATION, DurableStore, StartedRun
from agentkit.durable.stored.run_request import RunRequest, check_name
from agentkit.errors import named_problems
from agentkit.run.journal.journal import Journal
from agentkit.runs.run_errors import DurableError
from agentkit.runs.run_record import RunRecord, RunsWanted
from agentkit.runs.worker_rows import WorkerRow

__all__ = [
    "SCHEDULED",
    "ScheduleInfo",
    "begin_scheduled",
    "known_schedules",
    "pause_damaged",
    "schedule_names",
    "set_schedule",
]

SCHEDULED = "agentkit.scheduled"
"""Name of the workflow that a schedule starts: it starts the run."""
_MAX_CRON = 1_000
_log = logging.getLogger("agentkit")
_RANDOM = re.compile(r"(?<![A-Za-z])[rR](?![A-Za-z])")
"""A field that croniter chooses anew by chance."""


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule, and what became of it."""

    name: str
    agent: str
    cron: str
    timezone: str
    tenant: str
    """Whose runs it begins."""
    catches_up: bool
    """Whether runs that were due while there was no worker begin when there is one."""
    next_at: datetime
    """When it is due next, in its time zone."""
    last_at: datetime | None
    """When it was due last and a worker saw to it, in its time zone; None where that has not been."""
    last_run: RunRecord | None
    """The run that it began last; None before the first, or where that run was deleted."""
    problem: str | None
    """Why it will not go on by itself, such as that no worker has its agent."""


def known_schedules(store: DurableStore) -> list[ScheduleInfo]:
    """Return the schedules in a database, by name."""
    rows = sorted(_rows(store), key=lambda row: str(row["schedule_name"]))
    alive = [one for one in store.workers.all() if one.is_alive]
    found: list[ScheduleInfo] = []
    for row in rows:
        try:
            found.append(_schedule_info(row, _last_run(store, row["schedule_name"]), alive))
        except _DAMAGED as error:
            _log.warning(_REPORT, str(row["schedule_name"]), "listed", error)
    return found


def schedule_names(store: DurableStore) -> list[str]:
    """Return the names of the schedules in a database, those that are damaged included."""
    return [str(row["schedule_name"]) for row in _rows(store)]


def pause_damaged(store: DurableStore) -> None:
    """Pause the schedules that cannot be read: DBOS would begin with none any more."""
    for row in _rows(store):
        try:
            _schedule_info(row, None, ())
        except _DAMAGED as error:
            if row["status"] == "ACTIVE":
                _log.warning(_REPORT, str(row["schedule_name"]), "begun with", error)
                store.client.pause_schedule(row["schedule_name"])


_DAMAGED = (DurableError, ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError)
_REPORT = "schedule %r is damaged and is not %s: delete it, and make it anew: %s"


def _rows(store: DurableStore) -> Sequence[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = store.client.list_schedules(application_name=APPLICATION)
    return rows


def _last_run(store: DurableStore, name: str) -> RunRecord | None:
    """Return the run that a schedule began last; None before the first, or where that run was deleted."""
    return next(iter(store.listed(RunsWanted(schedule=name, limit=1))), None)


def _schedule_info(row: Mapping[str, Any], last_run: RunRecord | None, workers: Sequence[WorkerRow]) -> ScheduleInfo:
    """Return what a row of DBOS holds; `workers` are those that are alive."""
    from zoneinfo import ZoneInfo

    from croniter import croniter

    request = RunRequest.of_data(row["context"]["request"])
    name, cron, zone = row["schedule_name"], row["schedule"], row.get("cron_timezone") or "UTC"
    place, last = ZoneInfo(zone), row["last_fired_at"]
    problem = None
    if not any(request.agent in {agent for agent, _ in one.serves} for one in workers):
        what = f"no worker has agent {request.agent!r}, so that its runs wait" if workers else "there is no worker"
        problem = f"{what}: start one"
    return ScheduleInfo(
        name=name,
        agent=request.agent,
        cron=cron,
        timezone=zone,
        tenant=request.tenant,
        catches_up=bool(row["automatic_backfill"]),
        next_at=croniter(cron, datetime.now(place), second_at_beginning=True).get_next(datetime),
        last_at=None if last is None else datetime.fromisoformat(last).astimezone(place),
        last_run=last_run,
        problem=problem,
    )


def set_schedule(
    store: DurableStore, name: str, started: StartedRun, cron: str, timezone: str, *, catches_up: bool
) -> None:
    """Store a schedule, in place of the one of this name.

    Raises:
        DurableError: The name, the cron expression or the time zone is invalid; nothing was stored.
    """
    from zoneinfo import ZoneInfo

    from croniter import CroniterBadDateError, croniter

    problems: list[str] = []
    check_name("name", name, problems)
    expected = "expected five fields such as '0 6 * * 1', or six with seconds first"
    if not isinstance(cron, str) or len(cron) > _MAX_CRON or not croniter.is_valid(cron, second_at_beginning=True):
        problems.append(f"cron={cron!r:.60}: {expected}")
    elif _RANDOM.search(cron):
        problems.append(f"cron={cron!r:.60}: R is another time whenever it is read; {expected}")
    else:
        try:
            croniter(cron, second_at_beginning=True).get_next()
        except CroniterBadDateError:
            problems.append(f"cron={cron!r:.60}: there is no such time, so it would never start anything; {expected}")
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, TypeError, OSError):
        problems.append(f"timezone={timezone!r:.60}: expected an IANA name such as 'Europe/Berlin'")
    if problems:
        raise DurableError(f"schedule: {'; '.join(problems)}; nothing was stored", **named_problems(problems))
    store.client.apply_schedules(
        [
            {
                "schedule_name": name,
                "workflow_name": SCHEDULED,
                "schedule": cron,
                "context": {"name": name, "request": started.request.data(), "head": started.head},
                "cron_timezone": timezone,
                "automatic_backfill": catches_up,
            }
        ]
    )


def begin_scheduled(store: DurableStore, agents: AddedAgents, at: str, context: Mapping[str, Any]) -> str:
    """Start the run of a schedule that is due, and return its id; the same however often it is called.

    Of the agent as this process has it, and else of the version there was when the schedule was made.
    """
    name = context["name"]
    request, run_id = RunRequest.of_data(context["request"]), f"{name}/{at}"
    journal = Journal.loads(context["head"])
    journal.run_id = run_id
    added = [one for one in agents.all if one.agent.name == request.agent]
    if added:
        journal.context = journal.context.evolve(tools=added[-1].agent.definition.tools.specs)
        request = replace(request, version=added[-1].version)
    request = replace(request, schedule=name)
    asked = None if journal.continues_session else journal.context.user_input
    with suppress(RunIdTaken):  # begun by a worker that has another version
        store.enqueue([StartedRun(run_id, request, journal.dumps(), asked)])
    return run_id
