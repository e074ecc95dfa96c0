"""`agentkit ingest`: reads documents into memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import DownloadColumn

from agentkit.cli.agent_option import AgentSource, memory_of, scope_of
from agentkit.cli.options import HOME, AsJson, EmbedderName, Home, TenantName, not_empty, open_memory, utf8
from agentkit.cli.screen import complain, note, progress_bar, put, put_json

if TYPE_CHECKING:
    from agentkit_memory.ingest.report import IngestProgress, IngestReport


def ingest(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", readable=False, help="Text, Markdown, HTML, PDF or JSON lines files, or folders of them."
        ),
    ],
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Read the valid parts of corrupt files and report the rest.")
    ] = False,
    text: Annotated[
        list[str] | None, typer.Option(metavar="FIELD", help="Field of a JSON record with its text. Repeatable.")
    ] = None,
    title: Annotated[
        list[str] | None, typer.Option(metavar="FIELD", help="Field of a JSON record with its title. Repeatable.")
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="FIELD", help="Field of a JSON record to store as metadata. Repeatable.")
    ] = None,
    agent: AgentSource = None,
    tenant: TenantName = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="User who alone recalls the documents.", callback=not_empty),
    ] = None,
    shared: Annotated[
        str | None,
        typer.Option(
            "--shared",
            metavar="NAME",
            help="Name of shared documents, which agents of all tenants read by this name.",
        ),
    ] = None,
    embedder: EmbedderName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Read files into memory, from which agents recall them.

    Unchanged files are skipped, so the command may be interrupted and restarted at any time. The exit code is 1 if a
    file could not be read or no file was found; all other files are stored.

    The documents belong to the tenant `local` unless --tenant or --shared names another owner.

    Example: agentkit ingest docs/ --tenant acme
    """
    from agentkit_memory import IngestOptions

    if shared is not None and (tenant is not None or user is not None):
        raise typer.BadParameter("--shared is not valid with --tenant or --user: shared documents belong to no tenant")
    named = {"text": text, "title": title, "metadata": metadata}
    fields: dict[str, Any] = {f"record_{field}": tuple(names) for field, names in named.items() if names}
    options = IngestOptions(lenient=lenient, **fields)
    opened = memory_of(agent, home, embedder) if agent else open_memory(home, embedder=embedder)
    with opened as memory, progress_bar(DownloadColumn()) as bar:
        task = bar.add_task("reading", total=None)

        def progress(now: IngestProgress) -> None:
            text = f"reading {now.done}/{now.total} files, {now.chunks} chunks"
            bar.update(task, description=text, completed=now.done_bytes, total=now.total_bytes)

        owned = memory.within(scope_of(memory, tenant, user))
        is_read = shared is not None and utf8(shared) in memory.shared
        report = owned.ingest(paths, options=options, shared=shared and utf8(shared), on_progress=progress)
    if as_json:
        put_json(_report_form(report))
    else:
        place = str(home)
        if agent:
            place = f"the memory of {agent}"
        _show_report(report, place)
        if shared is not None and not is_read:
            note(f"agents read these documents by name only: `memory: {{shared: [{shared}]}}` in the agent file")
    if report.errors or not report.files:
        raise typer.Exit(1)


def _report_form(report: IngestReport) -> dict[str, Any]:
    counts = {name: len(getattr(report, name)) for name in ("added", "changed", "unchanged", "removed")}
    problems = {name: [str(error) for error in getattr(report, name)] for name in ("repaired", "gaps", "errors")}
    skipped = dict(report.skipped)
    return {**counts, "chunks": report.chunks, "pending": report.pending, "skipped": skipped, **problems}


def _show_report(report: IngestReport, place: str) -> None:
    counts = {"new": report.added, "changed": report.changed, "unchanged": report.unchanged, "removed": report.removed}
    files = ", ".join(f"{len(names)} {kind}" for kind, names in counts.items() if names)
    if files:
        put(f"{files}; {report.chunks} chunks written to {place}")
    if report.pending:
        note(f"{report.pending} chunks and messages wait to be indexed, and are found by their words until then")
    if report.skipped:
        skipped = ", ".join(f"{count} {ending}" for ending, count in report.skipped.items())
        note(f"files without a reader were skipped: {skipped}")
    for error in (*report.repaired, *report.gaps, *report.errors):
        complain(str(error))
    if not files and not report.errors:
        complain("no text, Markdown, HTML, PDF, Office or other readable file was found")
