"""Runs that begin by the clock: schedules of DBOS, each of which starts a run of an agent whenever it is due."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from agentkit.durable.added_agents import AddedAgents
from agentkit.durable.durable_errors import DurableError, RunIdTaken
from agentkit.durable.durable_store import DurableStore
from agentkit.durable.run_request import RunRequest, check_name
from agentkit.run.journal import Journal

__all__ = ["SCHEDULED", "ScheduleInfo", "begin_scheduled", "set_schedule"]

SCHEDULED = "agentkit.scheduled"
"""Name of the workflow that a schedule starts: it starts the run."""


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule, as the database has it."""

    name: str
    agent: str
    cron: str
    timezone: str
    last_at: str | None
    """When it was due last, as ISO 8601; None where it has not been."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ScheduleInfo:
        """Return what a row of DBOS says."""
        agent = RunRequest.of_data(row["context"]["request"]).agent
        return cls(
            row["schedule_name"], agent, row["schedule"], row.get("cron_timezone") or "UTC", row.get("last_fired_at")
        )


def set_schedule(
    store: DurableStore, name: str, request: RunRequest, priority: int, cron: str, timezone: str, *, catches_up: bool
) -> None:
    """Store a schedule, in place of the one of this name.

    Raises:
        DurableError: The name, the cron expression or the time zone is invalid; nothing was stored.
    """
    from zoneinfo import ZoneInfo

    from croniter import croniter

    problems: list[str] = []
    check_name("name", name, problems)
    if not isinstance(cron, str) or not croniter.is_valid(cron, second_at_beginning=True):
        problems.append(f"cron={cron!r:.60}: expected five fields such as '0 6 * * 1', or six with seconds first")
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, TypeError, OSError):
        problems.append(f"timezone={timezone!r:.60}: expected an IANA name such as 'Europe/Berlin'")
    if problems:
        raise DurableError(f"schedule: {'; '.join(problems)}; nothing was stored")
    store.client.apply_schedules(
        [
            {
                "schedule_name": name,
                "workflow_name": SCHEDULED,
                "schedule": cron,
                "context": {"name": name, "request": request.data(), "priority": priority},
                "cron_timezone": timezone,
                "automatic_backfill": catches_up,
            }
        ]
    )


def begin_scheduled(store: DurableStore, agents: AddedAgents, at: str, context: Mapping[str, Any]) -> str:
    """Start the run of a schedule that is due, and return its id; the same however often it is called.

    Of the agent as this process has it, and else of the version there was when the schedule was made.
    """
    request, run_id = RunRequest.of_data(context["request"]), f"{context['name']}/{at}"
    journal = Journal.loads(request.head)
    journal.run_id = run_id
    added = [one for one in agents.all if one.agent.name == request.agent]
    if added:
        journal.context = journal.context.evolve(tools=added[-1].agent.specs)
        request = replace(request, version=added[-1].version)
    request = replace(request, head=journal.dumps())
    with suppress(RunIdTaken):  # begun by a worker that has another version
        store.enqueue([(run_id, request)], priority=context["priority"])
    return run_id
