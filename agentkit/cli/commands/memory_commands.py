"""`agentkit memory ...`: commands that verify, repair, back up, move, erase and measure a memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.text import Text

from agentkit.cli.options import (
    HOME,
    TENANT,
    AsJson,
    EmbedderName,
    Home,
    TenantName,
    memory_with,
    not_empty,
    open_existing,
    utf8,
)
from agentkit.cli.screen import fail, note, plain, progress_bar, put, put_json, put_table

if TYPE_CHECKING:
    from agentkit_memory import Memory
    from agentkit_memory.reembed.gate import Reembedding, ReembedProgress
    from agentkit_memory.store.records import Erasure, Verification

memory_app = typer.Typer(no_args_is_help=True)

_PROBLEMS = ("missing", "stale", "orphans", "unfound", "corrupt")
"""Counts of a verification that must be 0."""
_MAX_ROWS = 20
"""Maximum number of printed corrupt rows; `--json` prints more."""

Database: TypeAlias = Annotated[
    str | None,
    typer.Option("--database", envvar="AGENTKIT_DATABASE", metavar="URL", help="postgresql://... instead of a folder."),
]
IndexPlace: TypeAlias = Annotated[
    str | None,
    typer.Option("--index", metavar="PLACE", help="Folder or address of the index of --database. [default: URL]"),
]


def _store(home: Path, database: str | None, index: str | None, *, new: bool = False) -> Memory:
    """Open a store; exit with an error if a folder has no store and `new` is False."""
    from agentkit_memory import Memory

    if database is not None:
        return Memory(database, scope=TENANT, index=index)
    if index is not None:
        raise typer.BadParameter("--index is only valid with --database: a folder contains its index")
    if new:
        return Memory(home, scope=TENANT)
    return open_existing(home)


@memory_app.callback()
def memory() -> None:
    """Check, repair, back up, move, erase and measure a memory."""


@memory_app.command()
def verify(
    sample: Annotated[int, typer.Option(min=0, metavar="N", help="Number of items to search for.")] = 200,
    as_json: AsJson = False,
    database: Database = None,
    index: IndexPlace = None,
    home: Home = HOME,
) -> None:
    """Find corrupt rows, compare the index with the database, and search for a sample of items, without changes.

    The exit code is 1 if an item is missing, stale, orphaned, not found or corrupt; `agentkit memory repair` repairs
    the store.

    Example: agentkit memory verify --sample 1000 --json
    """
    with _store(home, database, index) as memory:
        verification = memory.admin.verify(sample=sample)
    _show({"now": verification}, asdict(verification), as_json, advice="`agentkit memory repair` repairs it")


@memory_app.command()
def repair(
    removed_to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="New file to which corrupt rows are moved; without it, they stay."),
    ] = None,
    as_json: AsJson = False,
    embedder: EmbedderName = None,
    home: Home = HOME,
) -> None:
    """Move corrupt rows to a file, index missing and stale items, and remove orphaned points.

    The exit code is 1 if problems remain.

    Example: agentkit memory repair --removed-to damaged.jsonl
    """
    with open_existing(home, embedder=embedder) as memory:
        done = memory.admin.repair(removed_to=removed_to)
    _show({"before": done.before, "after": done.after}, asdict(done), as_json)


@memory_app.command()
def rebuild(as_json: AsJson = False, embedder: EmbedderName = None, home: Home = HOME) -> None:
    """Rebuild the index from the database.

    The exit code is 1 if the new index has problems.

    Example: agentkit memory rebuild --json
    """
    with open_existing(home, embedder=embedder) as memory:
        verification = memory.admin.rebuild()
    _show({"now": verification}, asdict(verification), as_json)


@memory_app.command()
def compact(as_json: AsJson = False, database: Database = None, index: IndexPlace = None, home: Home = HOME) -> None:
    """Rewrite the files of the database and of the index without deleted bytes.

    The exit code is 1 if deleted bytes may remain, as on a database server.

    Example: agentkit memory compact
    """
    with _store(home, database, index) as memory:
        done = memory.admin.compact()
    if as_json:
        put_json({"compacted": done})
        if done:
            return
    if not done:
        note("deleted bytes may remain: another process was reading, or the database server removes them later")
        raise typer.Exit(1)
    put("no deleted bytes remain")


NewFile: TypeAlias = Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")]
Copy: TypeAlias = Annotated[Path, typer.Argument(metavar="FILE", help="A backup or an export.")]


@memory_app.command()
def backup(
    file: NewFile, as_json: AsJson = False, database: Database = None, index: IndexPlace = None, home: Home = HOME
) -> None:
    """Write a consistent copy of the store to FILE, while other processes may read and write.

    Example: agentkit memory backup monday.db
    """
    with _store(home, database, index) as memory:
        count = memory.admin.backup(file)
    _written("bytes", count, file, as_json)


@memory_app.command()
def export(
    file: NewFile, as_json: AsJson = False, database: Database = None, index: IndexPlace = None, home: Home = HOME
) -> None:
    """Write a consistent copy of all rows to FILE as JSON lines; `import` reads them into any database.

    Example: agentkit memory export rows.jsonl
    """
    with _store(home, database, index) as memory:
        count = memory.admin.export(file)
    _written("rows", count, file, as_json)


def _written(unit: str, count: int, file: Path, as_json: bool) -> None:
    if as_json:
        put_json({unit: count, "file": str(file)})
    else:
        put(f"{count:,} {unit}")


def _fill(file: Path, as_json: bool, database: str | None, index: str | None, home: Path) -> None:
    if not file.is_file():
        fail(f"{file}: the file does not exist; check the path")
    with _store(home, database, index, new=True) as memory:
        counts = memory.admin.restore(file)
        # The index of a store with an embedding model is built by a process that has its embedder.
        if not memory.model:
            memory.worker().drain()
    _removed(counts, as_json, "the file contains no rows", done="read")


@memory_app.command()
def restore(
    file: Copy, as_json: AsJson = False, database: Database = None, index: IndexPlace = None, home: Home = HOME
) -> None:
    """Read a backup into a new or empty store, and build the index.

    Example: agentkit memory restore monday.db --home restored
    """
    _fill(file, as_json, database, index, home)


@memory_app.command("import")
def import_(
    file: Copy, as_json: AsJson = False, database: Database = None, index: IndexPlace = None, home: Home = HOME
) -> None:
    """Read an export into a new or empty store, and build the index.

    Example: agentkit memory import rows.jsonl --database postgresql://localhost/agents
    """
    _fill(file, as_json, database, index, home)


@memory_app.command()
def usage(as_json: AsJson = False, database: Database = None, index: IndexPlace = None, home: Home = HOME) -> None:
    """Show the storage usage of each tenant.

    Example: agentkit memory usage --json
    """
    from agentkit_memory.store.records import Usage

    with _store(home, database, index) as memory:
        usages = memory.admin.usage()
    if as_json:
        put_json([asdict(each) for each in usages])
        return
    rows = [[f"{value:,}" if isinstance(value, int) else value for value in asdict(each).values()] for each in usages]
    put_table([each.name for each in fields(Usage)], rows)


@memory_app.command()
def expire(as_json: AsJson = False, database: Database = None, index: IndexPlace = None, home: Home = HOME) -> None:
    """Delete expired conversations with their index entries and facts.

    Example: agentkit memory expire
    """
    with _store(home, database, index) as memory:
        _removed(memory.admin.expire(), as_json, "nothing has expired")


@memory_app.command()
def erase(
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="A user, with all sessions and agents.", callback=not_empty)
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help="A session of a scope.", callback=not_empty)
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="An agent.", callback=not_empty)] = None,
    conversation: Annotated[
        str | None, typer.Option(metavar="NAME", help="A conversation of `chat`.", callback=not_empty)
    ] = None,
    everything: Annotated[bool, typer.Option("--everything", help="All data of the tenant.")] = False,
    tenant: TenantName = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Erase without confirmation.")] = False,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Erase the data of a subject from the database and the index, and verify that nothing remains.

    The exit code is 1 if data remains: the number of rows is printed, and the next opening of the memory continues the
    erasure.

    Example: agentkit memory erase --user ada --yes
    """
    from agentkit_memory import Scope

    names = {"user": user, "session": session, "agent": agent}
    scope = {name: utf8(value) for name, value in names.items() if value is not None}
    if sum((bool(scope), conversation is not None, everything)) != 1:
        raise typer.BadParameter("name a subject: --user, --session or --agent; or --conversation; or --everything")
    subject = ", ".join(f"{name} {value}" for name, value in scope.items())
    owner = Scope(utf8(tenant or TENANT))
    if conversation is not None:
        subject = f"conversation {utf8(conversation)}"
    with open_existing(home, owner) as memory:
        if not yes:
            typer.confirm(
                plain(f"Erase {subject or f'everything of {owner.tenant}'} from {home}?"), abort=True, err=True
            )
        if conversation is None:
            _proof(memory.erase(owner.narrow(**scope)), as_json)
        else:
            existed = memory_with(memory, utf8(conversation)).delete_session(utf8(conversation))
            _removed({"conversations": int(existed)}, as_json, f"unknown {subject}")
            if not existed:
                raise typer.Exit(1)


def _proof(done: Erasure, as_json: bool) -> None:
    if as_json:
        put(json.dumps(asdict(done) | {"complete": done.complete}, indent=2))
    else:
        _removed(done.removed, as_json, "no data of the subject was stored")
        remaining = sum(done.found.values())
        points = "the index could not be read"
        if done.points is not None:
            points = f"{done.points} points in the index"
        if done.waiting:
            points += f", {done.waiting} to be removed"
        put(f"a new scan finds {remaining} rows, {points}")
        if done.compacted:
            put("no deleted bytes remain in the files")
    if done.note:
        note(done.note)
    if not done.complete:
        raise typer.Exit(1)


@memory_app.command()
def reembed(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="New model, such as fastembed:BAAI/bge-small-en-v1.5.")
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Use BM25 without a model.")] = False,
    abandon: Annotated[bool, typer.Option("--abandon", help="Cancel an unfinished change.")] = False,
    gate: Annotated[bool, typer.Option(help="Check the new index before it becomes active.")] = True,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Change the embedding MODEL: build a second index, check it, and activate it.

    The command may be interrupted and repeated. The exit code is 1 if the new index failed its checks.

    Example: agentkit memory reembed fastembed:BAAI/bge-small-en-v1.5
    """
    if sum((model is not None, words, abandon)) != 1:
        raise typer.BadParameter("expected a MODEL, --words or --abandon")
    with open_existing(home) as memory:
        if abandon:
            _abandon(memory, as_json)
            return
        with progress_bar() as bar:
            task = bar.add_task("embedding", total=None)

            def progress(now: ReembedProgress) -> None:
                bar.update(task, completed=now.done, total=now.total)

            # Without a model, only BM25 is indexed.
            name = None
            if model is not None:
                name = utf8(model)
            if gate:
                done = memory.admin.reembed(name, on_progress=progress)
            else:
                done = memory.admin.reembed(name, gate=None, on_progress=progress)
    _show_reembedding(done, as_json)


def _abandon(memory: Memory, as_json: bool) -> None:
    """Cancel an unfinished change of the embedding model, and print the result."""
    dropped = memory.admin.abandon_reembed()
    if as_json:
        put_json({"dropped": dropped})
    elif dropped:
        put("dropped")
    else:
        put("no change was started")


def _show_reembedding(done: Reembedding, as_json: bool) -> None:
    if as_json:
        put(json.dumps(asdict(done), indent=2))
    else:
        for check in done.checks:
            put(f"{check.name}: {check.found} of {check.tried} found, {check.minimum:.0%} needed")
        by = done.model or "BM25 alone"
        if done.flipped:
            put(f"{done.items} items are found with {by}")
        else:
            put(f"the index with {by} is built, but not active: {done.why}")
        if done.failing:
            put(f"{done.failing} items have no vector yet and are found with BM25")
    for space in done.left:
        note(f"another process still uses {space}; it is dropped when that process exits")
    if not done.flipped:
        note("run the command again to resume; --no-gate activates the index anyway, and --abandon drops it")
        raise typer.Exit(1)


def _show(
    verifications: Mapping[str, Verification], data: dict[str, object], as_json: bool, *, advice: str = ""
) -> None:
    """Print verifications, and exit with 1 if the last verification has problems."""
    last = [*verifications.values()][-1]
    if as_json:
        put_json(data)
    else:
        _put_verifications(verifications, last)
    if not last.ok:
        if advice:
            note(advice)
        raise typer.Exit(1)


def _put_verifications(verifications: Mapping[str, Verification], last: Verification) -> None:
    """Print verifications as columns, and the details of the last verification."""
    rows: list[list[str | Text]] = []
    for name in ("items", "points", "pending", "failing", *_PROBLEMS):
        style = ""
        if name in _PROBLEMS and getattr(last, name):
            style = "red"
        counts = [f"{getattr(each, name):,}" for each in verifications.values()]
        rows.append([Text(text, style) for text in (name, *counts)])
    put_table(("", *verifications), rows, numbers=verifications)
    for kind, ids in last.examples.items():
        note(f"{kind}: {', '.join(ids)}")
    for row in last.corrupt_rows[:_MAX_ROWS]:
        note(f"corrupt: {row.table} {row.row}: its {row.column} {row.problem}")
    for problem in last.file_problems:
        note(f"the file of the database is corrupt: {problem}")
    for item, problem in last.problems.items():
        note(f"failing: {item}: {problem}")


def _removed(counts: Mapping[str, int], as_json: bool, nothing: str, *, done: str = "removed") -> None:
    """Print the number of deleted or read rows per table."""
    if as_json:
        put(json.dumps(dict(counts), indent=2))
    elif not any(counts.values()):
        note(nothing)
    else:
        put(f"{done} " + ", ".join(f"{count} {table}" for table, count in counts.items() if count))
