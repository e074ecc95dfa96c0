"""Schedules: DBOS schedules that start runs of agents at set times."""

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

SCHEDULED = "agentkit.scheduled"
"""Name of the DBOS workflow that a schedule starts when it is due; the workflow starts the run."""
_MAX_CRON = 1_000
"""Maximum characters of a cron expression."""
_log = logging.getLogger("agentkit")
_RANDOM = re.compile(r"(?<![A-Za-z])[rR](?![A-Za-z])")
"""A random field, whose value croniter changes at every read."""


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule and its last run."""

    name: str
    agent: str
    cron: str
    timezone: str
    tenant: str
    """Tenant of the runs of the schedule."""
    catches_up: bool
    """True if runs that were due without a worker start later."""
    next_at: datetime
    """Next due time, in the time zone of the schedule."""
    last_at: datetime | None
    """Last due time that a worker handled, in the time zone of the schedule, or None."""
    last_run: RunRecord | None
    """The latest run; None before the first run, or if the run was deleted."""
    problem: str | None
    """Reason why the schedule starts no runs, such as a missing worker, or None."""


def known_schedules(store: DurableStore) -> list[ScheduleInfo]:
    """Return the schedules in a database, by name."""
    rows = sorted(_rows(store), key=lambda row: str(row["schedule_name"]))
    alive = [worker for worker in store.workers.all() if worker.is_alive]
    infos: list[ScheduleInfo] = []
    for row in rows:
        try:
            infos.append(_schedule_info(row, _last_run(store, row["schedule_name"]), alive))
        except _CORRUPT as error:
            _log.warning(_REPORT, str(row["schedule_name"]), "listed", error)
    return infos


def schedule_names(store: DurableStore) -> list[str]:
    """Return the names of all schedules in a database, including corrupt schedules."""
    return [str(row["schedule_name"]) for row in _rows(store)]


def pause_corrupt(store: DurableStore) -> None:
    """Pause corrupt schedules, which would stop DBOS from starting other schedules."""
    for row in _rows(store):
        try:
            _schedule_info(row, None, ())
        except _CORRUPT as error:
            if row["status"] == "ACTIVE":
                _log.warning(_REPORT, str(row["schedule_name"]), "started", error)
                store.client.pause_schedule(row["schedule_name"])


_CORRUPT = (DurableError, ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError)
"""Errors of reading a corrupt schedule."""
_REPORT = "schedule %r is corrupt and is not %s: delete it and create it again: %s"


def _rows(store: DurableStore) -> Sequence[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = store.client.list_schedules(application_name=APPLICATION)
    return rows


def _last_run(store: DurableStore, name: str) -> RunRecord | None:
    """Return the latest run of a schedule, or None."""
    return next(iter(store.listed(RunsWanted(schedule=name, limit=1))), None)


def _schedule_info(row: Mapping[str, Any], last_run: RunRecord | None, workers: Sequence[WorkerRow]) -> ScheduleInfo:
    """Return the schedule of a row of DBOS; `workers` are the live workers."""
    from zoneinfo import ZoneInfo

    from croniter import croniter

    request = RunRequest.from_data(row["context"]["request"])
    name, cron, zone = row["schedule_name"], row["schedule"], row.get("cron_timezone") or "UTC"
    zone_info, last_at = ZoneInfo(zone), None
    if row["last_fired_at"] is not None:
        last_at = datetime.fromisoformat(row["last_fired_at"]).astimezone(zone_info)
    problem = None
    if not workers:
        problem = "no worker is running: start one"
    elif not any(request.agent in {agent for agent, _ in worker.serves} for worker in workers):
        problem = f"no worker has agent {request.agent!r}, so that its runs wait: start one"
    return ScheduleInfo(
        name=name,
        agent=request.agent,
        cron=cron,
        timezone=zone,
        tenant=request.tenant,
        catches_up=bool(row["automatic_backfill"]),
        next_at=croniter(cron, datetime.now(zone_info), second_at_beginning=True).get_next(datetime),
        last_at=last_at,
        last_run=last_run,
        problem=problem,
    )


def set_schedule(
    store: DurableStore, name: str, started: StartedRun, cron: str, timezone: str, *, catches_up: bool
) -> None:
    """Store a schedule; replace a schedule of the same name.

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
        problems.append(f"cron={cron!r:.60}: R is a random time; {expected}")
    else:
        try:
            croniter(cron, second_at_beginning=True).get_next()
        except CroniterBadDateError:
            problems.append(f"cron={cron!r:.60}: this time does not exist; {expected}")
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


def start_scheduled(store: DurableStore, agents: AddedAgents, at: str, context: Mapping[str, Any]) -> str:
    """Start the run of a due schedule, only once, and return its id.

    The run uses the version of the agent in this process; without the agent, the version that the schedule was created
    with.
    """
    name = context["name"]
    request, run_id = RunRequest.from_data(context["request"]), f"{name}/{at}"
    journal = Journal.loads(context["head"])
    journal.run_id = run_id
    added = [row for row in agents.all if row.agent.name == request.agent]
    if added:
        journal.context = journal.context.evolve(tools=added[-1].agent.definition.tools.specs)
        request = replace(request, version=added[-1].version)
    request = replace(request, schedule=name)
    user_input = None
    if not journal.continues_session:
        user_input = journal.context.user_input
    with suppress(RunIdTaken):  # started by a worker with another version
        locale, tags = journal.context.locale, journal.tags
        store.enqueue([StartedRun(run_id, request, journal.dumps(), user_input, locale=locale, tags=tags)])
    return run_id
