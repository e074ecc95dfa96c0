"""`agentkit runs ...`: commands that list, show, decide about, message, cancel, resume and delete durable runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from agentkit.cli.commands.map_command import map_
from agentkit.cli.existing_runs import existing_runs, result_of
from agentkit.cli.options import AsJson, utf8
from agentkit.cli.screen import call_lines, complain, is_cut, note, put, put_exactly, put_table

if TYPE_CHECKING:
    from agentkit.durable.run_handle import RunHandle
    from agentkit.durable.schedules import ScheduleInfo
    from agentkit.run.journal.journal import Journal
    from agentkit.runs.run_record import RunRecord, WaitingCall

runs_app = typer.Typer(no_args_is_help=True)

Url: TypeAlias = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="AGENTKIT_RUNS_URL",
        metavar="URL",
        help="Database of the runs: sqlite:///runs.db or postgresql://...",
    ),
]
RunId: TypeAlias = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run.")]
CallId: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="[CALL]", help="Id of a waiting call; all waiting calls by default.")
]
By: TypeAlias = Annotated[str, typer.Option("--by", metavar="NAME", help="Name stored with the decision.")]


@runs_app.callback()
def runs() -> None:
    """List, show, decide about, message, cancel, resume and delete durable runs."""


@runs_app.command("list")
def list_(
    url: Url,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="queued, running, waiting, finished, failed or cancelled."),
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    session: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TEXT", help="Only runs with this tag.")] = None,
    inside: Annotated[str | None, typer.Option(metavar="RUN", help="Only runs of inner agents of this run.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first, with their errors and waiting calls.

    Example: agentkit runs list --url sqlite:///runs.db --state waiting
    """
    filters: dict[str, Any] = {"state": state, "agent": agent, "tenant": tenant, "user": user, "session": session}
    filters["tag"] = tag
    if inside is None:
        records = result_of(existing_runs(url).list_runs(**filters, limit=limit))
    else:
        options = ", ".join([f"--{name}" for name, value in filters.items() if value is not None])
        if options:
            raise typer.BadParameter(f"--inside lists all inner agents of a run: omit {options}")
        records = result_of(_handle(url, inside).inside())[:limit]
    if as_json:
        for record in records:
            put(json.dumps(_data(record)))
        return
    rows = []
    for record in records:
        owner = record.agent, record.tenant, record.user, record.session or ""
        tags = ", ".join(record.tags)
        rows.append((record.run_id, record.state, *owner, tags, _time(record.created_at), _reason(record)))
    put_table(("run", "state", "agent", "tenant", "user", "session", "tags", "started", "reason"), rows)


def _reason(record: RunRecord) -> str:
    """Return the reason why a run does not continue; empty if it continues."""
    if record.error:
        return str(record.error)
    if record.problem:
        return record.problem
    calls = ", ".join([f"{call.tool} ({call.call_id})" for call in record.waiting])
    if calls:
        return f"waits for a decision about {calls}"
    return ""


@runs_app.command()
def show(
    run: RunId,
    url: Url,
    as_case: Annotated[
        bool, typer.Option("--as-case", help="Print a row of a file for `agentkit eval --rows`, a line of JSON.")
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option("--agent", "-a", metavar="FILE", help="With --as-case: agent whose memory has the session."),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="With --as-case: tag of the row. Repeatable.")
    ] = None,
    redact: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="With --as-case: function that returns each text of the row without secrets and personal data.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the input, the steps and the waiting calls of a run, or print the run as a row for an evaluation.

    Example: agentkit runs show RUN --url sqlite:///runs.db
    Example: agentkit runs show RUN --as-case --redact privacy.py:mask --url sqlite:///runs.db
    """
    from agentkit.cli.stored_run_case import imported_redact, stored_case_line

    if as_case:
        function = imported_redact(redact)
        tags = [utf8(name) for name in tag or ()]
        put_exactly(f"{stored_case_line(existing_runs(url), utf8(run), agent=agent, tags=tags, redact=function)}\n")
        return
    only_case = {"agent": agent, "tag": tag, "redact": redact}
    names = ", ".join([f"--{name}" for name, value in only_case.items() if value is not None])
    if names:
        raise typer.BadParameter(f"{names}: only with --as-case")
    handle = _handle(url, run)
    info, journal = result_of(handle.info()), result_of(handle.journal())
    decided: Sequence[WaitingCall] = ()
    if info.parent is None:
        decided = result_of(handle.decided())
    if as_json:
        lines = [json.loads(line) for line in journal.dumps().splitlines()]
        put(json.dumps({**_data(info), "decided": [_call_data(call) for call in decided], "journal": lines}))
    else:
        _put_run(info, journal, decided)


def _put_run(info: RunRecord, journal: Journal, decided: Sequence[WaitingCall]) -> None:
    """Print the state, the steps and the waiting calls of a run."""
    from agentkit.cli.journal_text import put_indented, put_journal

    origin = info.version
    if info.parent is not None:
        origin = f"inside of {info.parent}"
    put_indented(f"{info.run_id}: {info.state}, agent {info.agent}, {origin}, started {_time(info.created_at)}")
    for cause in filter(None, (info.error, info.problem)):
        put_indented(str(cause))
    put_journal(journal, {call.call_id: call.decided_by for call in decided})
    for call in info.waiting:
        put("waits: " + "\n".join(call_lines(call.call, agent=call.agent)))
    if any(is_cut(call.call) for call in info.waiting):
        note("long arguments are cut: --json prints them whole")


@runs_app.command()
def approve(
    run: RunId,
    url: Url,
    call: CallId = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Arguments that replace the arguments of the call.")
    ] = None,
    by: By = "",
    as_json: AsJson = False,
) -> None:
    """Approve a waiting call. The run continues when all its calls are decided.

    Example: agentkit runs approve RUN --url sqlite:///runs.db --by ada
    """
    from agentkit.ground.request_json import request_json

    replacement = None
    if arguments is not None:
        try:
            replacement = request_json(utf8(arguments).encode())
        except ValueError as error:
            raise typer.BadParameter(f"--arguments: not JSON: {error}") from error
        if not isinstance(replacement, dict):
            raise typer.BadParameter("--arguments: expected a JSON object")
    result_of(_handle(url, run).approve(call, replacement, by=utf8(by)))
    _report("approved; ", url, run, as_json)


@runs_app.command()
def deny(
    run: RunId,
    url: Url,
    call: CallId = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Reason, which the model receives.")] = "",
    by: By = "",
    as_json: AsJson = False,
) -> None:
    """Deny a waiting call.

    Example: agentkit runs deny RUN CALL --url sqlite:///runs.db --reason "too much"
    """
    result_of(_handle(url, run).deny(call, utf8(reason), by=utf8(by)))
    _report("denied; ", url, run, as_json)


@runs_app.command()
def send(
    run: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text of the user.")],
    url: Url,
    when: Annotated[
        str,
        typer.Option(metavar="MOMENT", help="next_step: before the next model call; idle: when the run would end."),
    ] = "next_step",
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Name of the sender.")] = "",
    as_json: AsJson = False,
) -> None:
    """Send a message to an unfinished run.

    Example: agentkit runs send RUN "And the desks?" --url sqlite:///runs.db --by ada
    """
    moment: Any = utf8(when)
    result_of(_handle(url, run).send(utf8(text), when=moment, by=utf8(by)))
    _report("sent; ", url, run, as_json)


@runs_app.command()
def cancel(
    run: RunId,
    url: Url,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Reason, which the model of the next run of the session reads.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Cancel a run.

    Example: agentkit runs cancel RUN --url sqlite:///runs.db --reason "wrong order"
    """
    result_of(_handle(url, run).cancel(utf8(reason)))
    _report("", url, run, as_json)


@runs_app.command()
def resume(run: RunId, url: Url, as_json: AsJson = False) -> None:
    """Resume a failed or cancelled run; completed steps are not repeated.

    Example: agentkit runs resume RUN --url sqlite:///runs.db
    """
    result_of(_handle(url, run).resume())
    _report("", url, run, as_json)


@runs_app.command("workers")
def workers_(url: Url, as_json: AsJson = False) -> None:
    """List running workers, and workers that stopped within a day.

    Example: agentkit runs workers --url sqlite:///runs.db
    """
    for worker in result_of(existing_runs(url).workers()):
        if as_json:
            put(json.dumps(asdict(worker)))
        else:
            agents = ", ".join(f"{name} {version}" for name, version in worker.serves)
            put(f"{worker.id}: {worker.state}, renewed its lease {worker.silent:.0f} s ago; {agents}")


@runs_app.command()
def cost(
    url: Url,
    by: Annotated[str, typer.Option(metavar="WHAT", help="run, agent, tenant, session, tool or layer.")] = "tenant",
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this tenant.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show tokens and money of runs, the most expensive first.

    Example: agentkit runs cost --url sqlite:///runs.db --by agent
    """
    kind: Any = by
    for cost in result_of(existing_runs(url).costs(kind, tenant=tenant)):
        usage = cost.usage
        if as_json:
            put(json.dumps({"name": cost.name, "runs": cost.runs, **asdict(usage)}))
            continue
        unit = "runs"
        if by in ("tool", "layer"):
            unit = "calls"
        name = cost.name or f"no {by}"
        text = f"{name}: {cost.runs} {unit}, {usage.input_tokens} tokens in, {usage.output_tokens} out"
        if usage.money is not None:
            text += f", {usage.money:.6g} US dollars"
        put(text)


@runs_app.command("schedules")
def schedules_(url: Url, as_json: AsJson = False) -> None:
    """List schedules with their next and last time and the state of the last run.

    Example: agentkit runs schedules --url sqlite:///runs.db
    """
    schedules = result_of(existing_runs(url).schedules())
    if as_json:
        for schedule in schedules:
            put(json.dumps(_schedule_data(schedule)))
        return
    rows = []
    for schedule in schedules:
        last_at = last_run = ""
        if schedule.last_at is not None:
            last_at = _zoned(schedule.last_at)
        run = schedule.last_run
        if run is not None:
            last_run = ": ".join([run.state, *[str(cause) for cause in (run.error, run.problem) if cause]])
        times = f"{schedule.cron} {schedule.timezone}", _zoned(schedule.next_at), last_at
        rows.append((schedule.name, schedule.agent, *times, last_run, schedule.problem or ""))
    put_table(("schedule", "agent", "cron", "next", "last", "last run", "problem"), rows)


def _schedule_data(schedule: ScheduleInfo) -> dict[str, Any]:
    last_run = None
    if schedule.last_run is not None:
        last_run = _data(schedule.last_run)
    times = {"next_at": schedule.next_at.isoformat(), "last_at": schedule.last_at and schedule.last_at.isoformat()}
    return {**asdict(schedule), **times, "last_run": last_run}


@runs_app.command()
def unschedule(
    name: Annotated[str, typer.Argument(metavar="SCHEDULE", help="Name of a schedule.")],
    url: Url,
    as_json: AsJson = False,
) -> None:
    """Delete a schedule. Its started runs continue.

    Example: agentkit runs unschedule news --url sqlite:///runs.db
    """
    result_of(existing_runs(url).unschedule(utf8(name)))
    if as_json:
        put(json.dumps({"unscheduled": utf8(name)}))
    else:
        note(f"deleted the schedule {utf8(name)}")


@runs_app.command()
def delete(
    url: Url,
    runs: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="Ids of finished runs.")] = None,
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="All runs that finished more than DAYS days ago.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="With --older-than: only of this tenant.")] = None,
    archive: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --older-than: file to which the runs are appended before."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete finished runs with their journals, by id or by age.

    Example: agentkit runs delete --older-than 30 --archive runs.jsonl --url sqlite:///runs.db
    """
    if (older_than is None) == (not runs):
        raise typer.BadParameter("expected ids of runs, or --older-than DAYS")
    for name, value in (("--tenant", tenant), ("--archive", archive)):
        if value is not None and older_than is None:
            raise typer.BadParameter(f"{name} is only valid with --older-than")
    stored = existing_runs(url)
    unfinished = 0
    if older_than is None:
        ids = [utf8(run) for run in runs or ()]
        deleted = result_of(stored.delete(ids))
        unfinished = len(set(ids)) - deleted
    else:
        deleted = result_of(stored.delete_ended(timedelta(days=older_than), tenant=tenant, archive=archive))
    if as_json:
        put(json.dumps({"deleted": deleted, "left": unfinished}))
    else:
        note(f"deleted {deleted} runs")
    if unfinished:
        complain(f"{unfinished} runs are not finished: cancel them first")
        raise typer.Exit(1)


runs_app.command("map")(map_)


def _handle(url: str, run: str) -> RunHandle[Any]:
    return existing_runs(url).handle(utf8(run))


def _report(done: str, url: str, run: str, as_json: bool) -> None:
    """Print the state of a run."""
    info = result_of(_handle(url, run).info())
    if as_json:
        put(json.dumps(_data(info)))
    elif info.waiting:
        note(f"{done}the run waits for a decision about {', '.join(call.call_id for call in info.waiting)}")
    elif info.problem:
        note(f"{done}the run is {info.state}: {info.problem}")
    else:
        note(f"{done}the run is {info.state}")


def _data(run: RunRecord) -> dict[str, Any]:
    names = ("run_id", "state", "agent", "version", "session", "tenant", "user", "tags", "worker", "attempts")
    return {
        **{name: getattr(run, name) for name in (*names, "problem")},
        "created_at": datetime.fromtimestamp(run.created_at, UTC).isoformat(),
        "updated_at": datetime.fromtimestamp(run.updated_at, UTC).isoformat(),
        "error": None if run.error is None else str(run.error),
        "inside": run.parent,
        "waiting": [_call_data(call) for call in run.waiting],
    }


def _call_data(call: WaitingCall) -> dict[str, Any]:
    from agentkit.run.parts.decisions import decision_data

    return {**asdict(call), "decision": None if call.decision is None else decision_data(call.decision)}


def _time(when: float) -> str:
    return f"{datetime.fromtimestamp(when):%Y-%m-%d %H:%M:%S}"


def _zoned(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S %Z}"
