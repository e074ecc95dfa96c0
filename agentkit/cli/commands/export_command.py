"""`agentkit export`: fine-tuning rows of evaluations, durable runs and stored conversations."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from agentkit.cli.agent_option import AgentSource, conversation_memory, opened_agent
from agentkit.cli.existing_runs import existing_runs
from agentkit.cli.options import HOME, AsJson, Home, Output, TenantName, UserName, memory_with, utf8
from agentkit.cli.screen import complain, note, progress_bar, put, put_json

if TYPE_CHECKING:
    from agentkit.agent_files.loaded_agent import LoadedAgent
    from agentkit.run.parts.session import SessionProtocol
    from agentkit.training.row_export import ExportReport
    from agentkit.training.row_formats import RowFormat
    from agentkit.training.run_examples import SessionFinder
    from agentkit.training.training_example import TrainingSource
    from agentkit_memory import Memory

_LISTED = 20
"""Maximum number of sources without a row that are printed."""


def export(
    agent: AgentSource = None,
    session: Annotated[
        list[str] | None,
        typer.Option("--session", "-s", metavar="NAME", help="Conversation to export; all by default. Repeatable."),
    ] = None,
    evaluation: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="FILE", help="File --out of `agentkit eval --agent`. Repeatable."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Database of durable runs: sqlite:///runs.db or postgresql://..."),
    ] = None,
    row_format: Annotated[
        str,
        typer.Option("--format", metavar="NAME", help="messages, openai, trl, openai-preference or trl-preference."),
    ] = "messages",
    chat_template: Annotated[
        str | None, typer.Option(metavar="NAME", help="Adds the text of each row and its trained spans.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="tokenizer.json of the model: adds token ids and labels. Needs a template."),
    ] = None,
    minimum: Annotated[
        list[str] | None,
        typer.Option("--min", metavar="SCORE=VALUE", help="Only runs with this score or a higher one. Repeatable."),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="NAME", help="Only runs with one of these tags. Repeatable.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="DATE", help="Only runs since, such as 2026-11-01.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Only runs before, such as 2026-12-01.")] = None,
    prefer: Annotated[
        str | None, typer.Option(metavar="SCORE", help="Score that chooses the better answer of a preference pair.")
    ] = None,
    present_prompts: Annotated[
        bool,
        typer.Option("--present-prompts", help="Also runs whose prompts have changed, with the present prompts."),
    ] = False,
    output: Output = None,
    user: UserName = None,
    tenant: TenantName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Write fine-tuning rows: the prompt and the answer of runs of evaluations (--from), of durable runs (--url), or
    of stored conversations.

    For conversations, memory is queried again: for current documents and facts, and for messages from before the
    question. Sources of erased users are left out. The exit code is 1 if a source was left out for another reason.

    Example: agentkit export --agent shop.yaml --from out.jsonl --min exact=1 --format openai --output rows.jsonl
    """
    from agentkit.training.row_export import export_rows

    kinds = [name for name, value in (("--session", session), ("--from", evaluation), ("--url", url)) if value]
    if len(kinds) > 1:
        raise typer.BadParameter(f"{' and '.join(kinds)}: export one kind of sources at a time")
    options: dict[str, Any] = {
        "format": cast("RowFormat", utf8(row_format)),
        "chat_template": chat_template,
        "tokenizer": tokenizer,
        "minimum": dict(map(_minimum, minimum or ())),
        "tags": [utf8(name) for name in tag or ()],
        "since": _date("--since", since),
        "until": _date("--until", until),
        "prefer": prefer,
    }
    with (
        opened_agent(agent, home=home, model="offline", tenant=tenant) as loaded,
        conversation_memory(loaded, home, tenant, user) as memory,
        _file(output) as path,
        progress_bar() as bar,
    ):
        if evaluation:
            sources = _evaluated(loaded, evaluation, present_prompts)
        elif url is not None:
            sources = _stored(loaded, memory, url, tenant, user, present_prompts)
        else:
            sources = _conversations(loaded, memory, session)
        task = bar.add_task("sources", total=None)
        report = export_rows(sources, path, on_source=lambda source: bar.advance(task), **options)
        if output is None:
            for line in path.read_bytes().splitlines():
                put(json.dumps(json.loads(line), ensure_ascii=True))
        _print(report, output, as_json)
        if user is None and not kinds:
            _note_users(memory)
    if not all(each.is_erased for each in report.left_out):
        raise typer.Exit(1)


@contextmanager
def _file(output: Path | None) -> Iterator[Path]:
    """Yield the file of the rows; a temporary file if they are printed."""
    if output is not None:
        yield output
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "rows.jsonl"


def _print(report: ExportReport, output: Path | None, as_json: bool) -> None:
    if output is not None and as_json:
        form: dict[str, Any] = {"lines": report.rows, "file": str(output)}
        if report.excluded:
            form["excluded"] = dict(report.excluded)
        if report.left_out:
            form["left_out"] = [{"source": each.place, "reason": each.reason} for each in report.left_out]
        put_json(form)
        return
    if output is not None:
        note(f"{report.rows} lines written to {output}")
    for condition, count in report.excluded.items():
        option = condition.replace("minimum ", "min ", 1).replace("tags ", "tag ", 1)
        note(f"{count} excluded by --{option}")
    for each in report.left_out[:_LISTED]:
        complain(f"left out: {each.place}: {each.reason}")
    if len(report.left_out) > _LISTED:
        complain(f"{len(report.left_out) - _LISTED} more were left out: --json lists all")


def _evaluated(loaded: LoadedAgent, files: Sequence[str], present_prompts: bool) -> Iterator[TrainingSource]:
    from agentkit.training.run_examples import evaluated_runs

    for file in files:
        yield from evaluated_runs(loaded.agent, utf8(file), uses_present_prompts=present_prompts)


def _stored(
    loaded: LoadedAgent, memory: Memory, url: str, tenant: str | None, user: str | None, present_prompts: bool
) -> Iterator[TrainingSource]:
    from agentkit.training.run_examples import stored_runs

    yield from stored_runs(
        loaded.agent,
        existing_runs(url).store.rows,
        tenant=tenant,
        user=user,
        session_of=_session_finder(memory),
        uses_present_prompts=present_prompts,
    )


def _session_finder(memory: Memory) -> SessionFinder:
    def session_of(user: str, name: str) -> SessionProtocol | None:
        own = memory_with(memory.within(memory.scope.narrow(user=user or memory.scope.user)), name)
        if not own.sessions(name=name):
            return None
        return own.session(name)

    return session_of


def _conversations(loaded: LoadedAgent, memory: Memory, names: Sequence[str] | None) -> Iterator[TrainingSource]:
    from agentkit.cli.stored_sessions import all_sessions, existing_session
    from agentkit.training.conversation_examples import conversation_answers

    for name in [utf8(name) for name in names or ()] or [stored.name for stored in all_sessions(memory)]:
        existing_session(memory, name)
        yield from conversation_answers(loaded.agent, memory_with(memory, name), name)


def _minimum(text: str) -> tuple[str, float]:
    name, mark, value = utf8(text).rpartition("=")
    try:
        if mark and name:
            return name, float(value)
    except ValueError:
        pass
    raise typer.BadParameter(f"--min {text!r:.60}: expected SCORE=VALUE, such as exact=1")


def _date(option: str, text: str | None) -> datetime | None:
    """Return the time of an option; a time without a zone is in UTC."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(utf8(text))
    except ValueError:
        raise typer.BadParameter(f"{option} {text!r:.60}: expected a date, such as 2026-11-01") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _note_users(memory: Memory) -> None:
    """Print the users whose conversations are not part of the export."""
    from agentkit.cli.stored_sessions import PAGE, first_of

    own = ("", memory.scope.with_default_user().user)
    users = dict.fromkeys(user for user, _ in memory.newest_sessions(limit=PAGE) if user not in own)
    if users:
        note(f"left out: conversations of users ({first_of([*users])}); --user NAME writes the conversations of a user")
