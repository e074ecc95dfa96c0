"""`agentkit runs ...`: look at durable runs, decide about them, cancel them, go on with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeAlias

import typer

from agentkit.cli.commands.map_command import map_
from agentkit.cli.options import AsJson, utf8
from agentkit.cli.screen import complain, note, put, put_table
from agentkit.durable.run_handle import RunHandle
from agentkit.durable.runs_facade import Runs
from agentkit.ground.sync_driver import run_blocking
from agentkit.run.journal.journal import Journal, inner_id
from agentkit.run.parts.decisions import Decision, Denied, decision_data
from agentkit.runs.run_record import RunRecord, WaitingCall

__all__ = ["runs_app"]

runs_app = typer.Typer(no_args_is_help=True)

Url: TypeAlias = Annotated[
    str,
    typer.Option(
        "--url", envvar="AGENTKIT_RUNS_URL", metavar="URL", help="Their database: sqlite:///runs.db or postgresql://..."
    ),
]
RunId: TypeAlias = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run.")]
CallId: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="[CALL]", help="Id of a call that waits; all of them if it is left out.")
]
By: TypeAlias = Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides; kept with the decision.")]


@runs_app.callback()
def runs() -> None:
    """Durable runs: look at them, decide, go on, delete."""


@runs_app.command("list")
def list_(
    url: Url,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="queued, running, waiting, finished, failed or cancelled."),
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    session: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    inside: Annotated[
        str | None, typer.Option(metavar="RUN", help="The agents that run inside of this one, and nothing else.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List runs, the latest first, with what keeps them from going on.

    Example: agentkit runs list --url sqlite:///runs.db --state waiting
    """
    wanted: dict[str, Any] = {"state": state, "agent": agent, "tenant": tenant, "session": session}
    if inside is None:
        found = run_blocking(_runs(url).list_runs(**wanted, limit=limit))
    elif given := [f"--{name}" for name, value in wanted.items() if value is not None]:
        raise typer.BadParameter(f"--inside lists all agents of one run: leave out {', '.join(given)}")
    else:
        found = run_blocking(_handle(url, inside).inside())[:limit]
    if as_json:
        for info in found:
            put(json.dumps(_data(info)))
        return
    rows = []
    for info in found:
        waits = ", ".join(f"{call.tool} ({call.call_id})" for call in info.waiting)
        what = str(info.error or "") or info.problem or (f"waits for a decision about {waits}" if waits else "")
        whose = info.agent, info.tenant or "", info.session or ""
        rows.append((info.run_id, info.state, *whose, _time(info.created_at), what))
    put_table(("run", "state", "agent", "tenant", "session", "began", "what"), rows)


@runs_app.command()
def show(run: RunId, url: Url, as_json: AsJson = False) -> None:
    """Show a run: what it was asked, what it did so far, and what it waits for.

    Example: agentkit runs show RUN --url sqlite:///runs.db
    """
    handle = _handle(url, run)
    info, journal = run_blocking(handle.info()), run_blocking(handle.journal())
    decided = run_blocking(handle.decided()) if info.parent is None else ()
    if as_json:
        lines = [json.loads(line) for line in journal.dumps().splitlines()]
        put(json.dumps({**_data(info), "decided": [_call_data(call) for call in decided], "journal": lines}))
        return
    what = info.version if info.parent is None else f"inside of {info.parent}"
    _line(f"{info.run_id}: {info.state}, agent {info.agent}, {what}, began {_time(info.created_at)}")
    for cause in filter(None, (info.error, info.problem)):
        _line(str(cause))
    _show_journal(journal, {call.call_id: call.decided_by for call in decided})
    for call in info.waiting:
        _line(f"waits: {call.tool} {call.arguments} ({call.call_id}{f', of {call.agent}' if call.agent else ''})")


@runs_app.command()
def approve(
    run: RunId,
    url: Url,
    call: CallId = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="What the call runs with in place of its arguments.")
    ] = None,
    by: By = "",
    as_json: AsJson = False,
) -> None:
    """Let a call run that waits. The run goes on once all its calls are decided.

    Example: agentkit runs approve RUN --url sqlite:///runs.db --by ada
    """
    given = None
    if arguments is not None:
        try:
            given = json.loads(arguments)
        except ValueError as error:
            raise typer.BadParameter(f"--arguments: not JSON: {error}") from error
        if not isinstance(given, dict):
            raise typer.BadParameter("--arguments: expected a JSON object")
    run_blocking(_handle(url, run).approve(call, given, by=utf8(by)))
    _report("approved; ", url, run, as_json)


@runs_app.command()
def deny(
    run: RunId,
    url: Url,
    call: CallId = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; the model reads it.")] = "",
    by: By = "",
    as_json: AsJson = False,
) -> None:
    """Have a call that waits not run.

    Example: agentkit runs deny RUN CALL --url sqlite:///runs.db --reason "too much"
    """
    run_blocking(_handle(url, run).deny(call, utf8(reason), by=utf8(by)))
    _report("denied; ", url, run, as_json)


@runs_app.command()
def cancel(run: RunId, url: Url, as_json: AsJson = False) -> None:
    """Cancel a run: nothing more of it begins.

    Example: agentkit runs cancel RUN --url sqlite:///runs.db
    """
    run_blocking(_handle(url, run).cancel())
    _report("", url, run, as_json)


@runs_app.command()
def resume(run: RunId, url: Url, as_json: AsJson = False) -> None:
    """Go on with a run that failed or was cancelled; what was done is not done again.

    Example: agentkit runs resume RUN --url sqlite:///runs.db
    """
    run_blocking(_handle(url, run).resume())
    _report("", url, run, as_json)


@runs_app.command("workers")
def workers_(url: Url, as_json: AsJson = False) -> None:
    """List the workers, and those that ended within a day.

    Example: agentkit runs workers --url sqlite:///runs.db
    """
    for worker in run_blocking(_runs(url).workers()):
        if as_json:
            put(json.dumps(asdict(worker)))
        else:
            agents = ", ".join(f"{name} {version}" for name, version in worker.serves)
            put(f"{worker.id}: {worker.state}, renewed its lease {worker.silent:.0f} s ago; {agents}")


@runs_app.command()
def cost(
    url: Url,
    by: Annotated[str, typer.Option(metavar="WHAT", help="run, agent, tenant, session, tool or layer.")] = "tenant",
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Of this one only.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show tokens and money of runs, from their journals, the most expensive first.

    Example: agentkit runs cost --url sqlite:///runs.db --by agent
    """
    kind: Any = by
    for one in run_blocking(_runs(url).costs(kind, tenant=tenant)):
        used = one.usage
        if as_json:
            put(json.dumps({"name": one.name, "runs": one.runs, **asdict(used)}))
        else:
            money = "" if used.money is None else f", {used.money:.6g} US dollars"
            what = "calls" if by in ("tool", "layer") else "runs"
            name = one.name or f"no {by}"
            put(f"{name}: {one.runs} {what}, {used.input_tokens} tokens in, {used.output_tokens} out{money}")


@runs_app.command("schedules")
def schedules_(url: Url, as_json: AsJson = False) -> None:
    """List the schedules: when each is due next, when it was due last, and what became of that run.

    Example: agentkit runs schedules --url sqlite:///runs.db
    """
    found = run_blocking(_runs(url).schedules())
    if as_json:
        for one in found:
            last = None if one.last_run is None else _data(one.last_run)
            times = {"next_at": one.next_at.isoformat(), "last_at": one.last_at and one.last_at.isoformat()}
            put(json.dumps({**asdict(one), **times, "last_run": last}))
        return
    rows = []
    for one in found:
        run = one.last_run
        became = [] if run is None else [run.state, *[str(what) for what in (run.error, run.problem) if what]]
        last_at = "" if one.last_at is None else _zoned(one.last_at)
        due = f"{one.cron} {one.timezone}", _zoned(one.next_at), last_at
        rows.append((one.name, one.agent, *due, ": ".join(became), one.problem or ""))
    put_table(("schedule", "agent", "cron", "next", "last", "last run", "what"), rows)


@runs_app.command()
def unschedule(
    name: Annotated[str, typer.Argument(metavar="SCHEDULE", help="Name of a schedule.")],
    url: Url,
    as_json: AsJson = False,
) -> None:
    """Delete a schedule. Runs that it began go on.

    Example: agentkit runs unschedule news --url sqlite:///runs.db
    """
    run_blocking(_runs(url).unschedule(utf8(name)))
    put(json.dumps({"unscheduled": utf8(name)})) if as_json else note(f"deleted the schedule {utf8(name)}")


@runs_app.command()
def delete(
    url: Url,
    runs: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="Ids of runs that have ended.")] = None,
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="All runs that ended so many days ago.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="With --older-than: of this one only.")] = None,
    as_json: AsJson = False,
) -> None:
    """Delete runs that have ended, with all that is stored of them: some, or those that ended some time ago.

    Example: agentkit runs delete --older-than 30 --url sqlite:///runs.db
    """
    if (older_than is None) == (not runs):
        raise typer.BadParameter("give ids of runs, or --older-than DAYS")
    if tenant is not None and older_than is None:
        raise typer.BadParameter("--tenant goes with --older-than: ids name their runs")
    stored = _runs(url)
    if older_than is None:
        ids = [utf8(run) for run in runs or ()]
        deleted = run_blocking(stored.delete(ids))
        left = len(set(ids)) - deleted
    else:
        deleted, left = run_blocking(stored.delete_ended(timedelta(days=older_than), tenant=tenant)), 0
    if as_json:
        put(json.dumps({"deleted": deleted, "left": left}))
    else:
        note(f"deleted {deleted} runs")
    if left:
        complain(f"{left} runs have not ended: cancel them first")
        raise typer.Exit(1)


runs_app.command("map")(map_)


def _runs(url: str) -> Runs:
    """Return the runs in a database that has some: a mistyped address makes no new one."""
    runs = Runs(utf8(url))
    run_blocking(runs.store.check_created())
    return runs


def _handle(url: str, run: str) -> RunHandle[Any]:
    return _runs(url).handle(utf8(run))


def _report(done: str, url: str, run: str, as_json: bool) -> None:
    """Print how a run is now."""
    info = run_blocking(_handle(url, run).info())
    if as_json:
        put(json.dumps(_data(info)))
    elif info.waiting:
        note(f"{done}it waits for a decision about {', '.join(call.call_id for call in info.waiting)}")
    else:
        note(f"{done}the run is {info.state}{f': {info.problem}' if info.problem else ''}")


def _line(text: str, indent: str = "") -> None:
    """Print a line of ours: what a model or a user wrote into it begins none that looks like one."""
    put(text.replace("\n", f"\n{indent}    "))


def _show_journal(journal: Journal, deciders: Mapping[str, str], indent: str = "", outer: str = "") -> None:
    """Print what a run did so far; what agents inside it did stands under the calls that ask them.

    `deciders` are those who decided, by the ids of the calls: those of agents inside are behind the id `outer`.
    """

    def known_as(call: str) -> str:
        return inner_id(outer, call) if outer else call

    _line(f"{indent}user: {journal.context.user_input.text}", indent)
    for effect, answer, *_ in journal.entries:
        if effect == "CallModel":
            message = answer.message
            if message.text:
                _line(f"{indent}model: {message.text}", indent)
            for call in message.tool_calls:
                _line(f"{indent}model calls {call.name} {call.arguments} ({call.id})", indent)
                if (inner := journal.inner.get(call.id)) is not None:
                    _show_journal(inner, deciders, f"{indent}  ", known_as(call.id))
        elif effect == "CallTools":
            result = answer[0]
            _line(f"{indent}{result.name} ({result.call_id}) {result.status}: {result.message.text}", indent)
        elif effect == "AskApproval":
            for call, made in answer.items():
                by = deciders.get(known_as(call))
                verdict = "denied" if isinstance(made, Denied) else "approved"
                _line(f"{indent}{verdict} {call}{f' by {by}' if by else ''}{_terms(made)}", indent)


def _terms(decision: Decision) -> str:
    """Return the reason of a denial, or what a call runs with in place of its arguments."""
    if isinstance(decision, Denied):
        return f": {decision.reason}" if decision.reason else ""
    return "" if decision.arguments is None else f", to run with {json.dumps(dict(decision.arguments))}"


def _data(run: RunRecord) -> dict[str, Any]:
    names = ("run_id", "state", "agent", "version", "session", "tenant", "user", "worker", "attempts", "problem")
    return {
        **{name: getattr(run, name) for name in names},
        "created_at": datetime.fromtimestamp(run.created_at, UTC).isoformat(),
        "updated_at": datetime.fromtimestamp(run.updated_at, UTC).isoformat(),
        "error": None if run.error is None else str(run.error),
        "inside": run.parent,
        "waiting": [_call_data(call) for call in run.waiting],
    }


def _call_data(call: WaitingCall) -> dict[str, Any]:
    return {**asdict(call), "decision": None if call.decision is None else decision_data(call.decision)}


def _time(when: float) -> str:
    return f"{datetime.fromtimestamp(when):%Y-%m-%d %H:%M:%S}"


def _zoned(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S %Z}"
