"""`agentkit runs ...`: look at durable runs, decide about them, cancel them, go on with them."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentkit.cli.options import AsJson, utf8
from agentkit.cli.screen import note, plain, put
from agentkit.durable.durable_store import RunInfo
from agentkit.durable.run_handle import RunHandle
from agentkit.durable.runs import Runs
from agentkit.run.decisions import decision_data
from agentkit.run.journal import Journal
from agentkit.sync_driver import run_blocking

__all__ = ["runs_app"]

runs_app = typer.Typer(no_args_is_help=True, help="Durable runs: list, show, approve, deny, cancel, resume.")

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
_WIDE = 200


@runs_app.command("list")
def list_(
    url: Url,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="queued, running, paused, finished, failed or cancelled."),
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    session: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List runs, the latest first, with what keeps them from going on."""
    wanted: dict[str, Any] = {"state": state, "agent": agent, "tenant": tenant, "session": session}
    runs = Runs(utf8(url))
    found = run_blocking(runs.list_runs(**wanted, limit=limit))
    if as_json:
        for info in found:
            put(json.dumps(_data(info)))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("run", "state", "agent", "tenant", "session", "began", "what"):
        table.add_column(column, overflow="fold")
    for info in found:
        waits = ", ".join(f"{call.tool} ({call.call_id})" for call in info.waiting)
        what = info.error or info.problem or (f"waits for a decision about {waits}" if waits else "")
        cells = (info.run_id, info.state, info.agent, info.tenant, info.session or "", _time(info.created_at), what)
        table.add_row(*[Text(plain(cell)) for cell in cells])
    console = Console(highlight=False)
    console.width = console.width if console.is_terminal else _WIDE
    console.print(table)


@runs_app.command()
def show(run: RunId, url: Url, as_json: AsJson = False) -> None:
    """Show a run: what it was asked, what it did so far, and what it waits for."""
    handle = _handle(url, run)
    info, journal = run_blocking(handle.info()), run_blocking(handle.journal())
    if as_json:
        put(json.dumps({**_data(info), "journal": [json.loads(line) for line in journal.dumps().splitlines()]}))
        return
    put(f"{info.run_id}: {info.state}, agent {info.agent} {info.version}, began {_time(info.created_at)}")
    for what in filter(None, (info.error, info.problem)):
        put(what)
    _show_journal(journal)
    for call in info.waiting:
        put(f"waits: {call.tool} {call.arguments} ({call.call_id}{f', of {call.agent}' if call.agent else ''})")


@runs_app.command()
def approve(
    run: RunId,
    url: Url,
    call: CallId = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="What the call runs with in place of its arguments.")
    ] = None,
    by: By = "",
) -> None:
    """Let a call run that waits. The run goes on once all its calls are decided."""
    given = None
    if arguments is not None:
        try:
            given = json.loads(arguments)
        except ValueError as error:
            raise typer.BadParameter(f"--arguments: not JSON: {error}") from error
        if not isinstance(given, dict):
            raise typer.BadParameter("--arguments: expected a JSON object")
    run_blocking(_handle(url, run).approve(call, given, by=utf8(by)))
    note(f"approved; {_waiting(url, run)}")


@runs_app.command()
def deny(
    run: RunId,
    url: Url,
    call: CallId = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; the model reads it.")] = "",
    by: By = "",
) -> None:
    """Have a call that waits not run."""
    run_blocking(_handle(url, run).deny(call, utf8(reason), by=utf8(by)))
    note(f"denied; {_waiting(url, run)}")


@runs_app.command()
def cancel(run: RunId, url: Url) -> None:
    """Cancel a run: nothing more of it begins."""
    run_blocking(_handle(url, run).cancel())
    note(_waiting(url, run))


@runs_app.command()
def resume(run: RunId, url: Url) -> None:
    """Go on with a run that failed or was cancelled; what was done is not done again."""
    run_blocking(_handle(url, run).resume())
    note(_waiting(url, run))


@runs_app.command("workers")
def workers_(url: Url, as_json: AsJson = False) -> None:
    """List the workers, and those that ended within a day."""
    for worker in run_blocking(Runs(utf8(url)).workers()):
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
    """Show tokens and money of runs, from their journals, the most expensive first."""
    kind: Any = by
    for one in run_blocking(Runs(utf8(url)).costs(kind, tenant=tenant)):
        used = one.usage
        if as_json:
            put(json.dumps({"name": one.name, "runs": one.runs, **asdict(used)}))
        else:
            money = "" if used.money is None else f", {used.money:.6g} US dollars"
            what = "calls" if by in ("tool", "layer") else "runs"
            name = one.name or f"no {by}"
            put(f"{name}: {one.runs} {what}, {used.input_tokens} tokens in, {used.output_tokens} out{money}")


def _handle(url: str, run: str) -> RunHandle[Any]:
    return Runs(utf8(url)).handle(utf8(run))


def _waiting(url: str, run: str) -> str:
    """Return how a run is now."""
    info = run_blocking(_handle(url, run).info())
    if info.waiting:
        return f"it waits for a decision about {', '.join(call.call_id for call in info.waiting)}"
    return f"the run is {info.state}{f': {info.problem}' if info.problem else ''}"


def _show_journal(journal: Journal) -> None:
    put(f"user: {journal.context.user_input.text}")
    for effect, answer, *_ in journal.entries:
        if effect == "CallModel":
            message = answer.message
            if message.text:
                put(f"model: {message.text}")
            for call in message.tool_calls:
                put(f"model calls {call.name} {call.arguments} ({call.id})")
        elif effect == "CallTools":
            result = answer[0]
            put(f"{result.name} ({result.call_id}) {result.status}: {result.message.text}")
        elif effect == "AskApproval":
            for call, made in answer.items():
                put(f"decided about {call}: {json.dumps(decision_data(made))}")


def _data(info: RunInfo) -> dict[str, Any]:
    data: dict[str, Any] = asdict(info)
    for name in ("created_at", "updated_at"):
        data[name] = data[name].isoformat()
    for call, one in zip(data["waiting"], info.waiting, strict=True):
        call["decision"] = None if one.decision is None else decision_data(one.decision)
    return data


def _time(when: datetime) -> str:
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S}"
