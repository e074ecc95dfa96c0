"""`agentkit recall` and `agentkit memory ...`: look into a memory, check it, mend it, and take things out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentkit.cli.options import HOME, AsJson, Home, UserName, utf8
from agentkit.cli.screen import complain, note, plain, put
from agentkit_memory import Memory, Scope
from agentkit_prompts.context import Document

if TYPE_CHECKING:
    from agentkit_memory.index.verify import Verification

__all__ = ["memory_app", "recall"]

memory_app = typer.Typer(no_args_is_help=True, help="Check a memory, mend it, and take things out of it.")

_TENANT = "local"
_KINDS = ("missing", "stale", "orphans")


def _open(home: Path, user: str | None = None) -> Memory:
    """Open a memory that exists: to look into one that does not is a slip of the pen, and makes none."""
    if not (home / "memory.db").exists():
        complain(f"{home}: there is no memory; `agentkit ingest` makes one, --home DIR names another folder")
        raise typer.Exit(1)
    return Memory.open(home, scope=Scope(_TENANT, user=utf8(user or "")))


def recall(
    query: Annotated[str, typer.Argument(metavar="QUESTION", help="In any words.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Most passages to show.")] = 5,
    as_json: AsJson = False,
    user: UserName = None,
    home: Home = HOME,
) -> None:
    """Show what memory finds for QUESTION, best first, with scores.

    The exit code is 1 when nothing is found.
    """
    with _open(home, user) as memory:
        found = memory.recall(utf8(query), limit=limit)
    for problem in found.degraded:
        note(problem)
    if as_json:
        put(json.dumps([_data(document) for document in found], ensure_ascii=False, indent=2))
    for document in () if as_json else found:
        _show(document)
    if not found:
        note("nothing was found")
        raise typer.Exit(1)


def _data(document: Document) -> dict[str, object]:
    found: dict[str, object] = {name: getattr(document, name) for name in ("id", "source", "title", "score", "text")}
    return found | {"metadata": dict(document.metadata)}


def _show(document: Document) -> None:
    place = f"{document.source}:{document.metadata['line']}" if "line" in document.metadata else document.source
    head = Text.assemble(
        (f"{document.score or 0:.2f}", "green"), " ", (plain(place), "cyan"), " ", (plain(document.title or ""), "bold")
    )
    console = Console(highlight=False)
    head.rstrip()
    console.print(head, soft_wrap=True)
    console.print(Text("\n".join(f"  {line}".rstrip() for line in plain(document.text).strip().splitlines())))


@memory_app.command()
def verify(as_json: AsJson = False, home: Home = HOME) -> None:
    """Compare the index with the database, point by point, changing nothing.

    The exit code is 1 when something is missing, stale or left over; `agentkit memory repair` mends it.
    """
    with _open(home) as memory:
        found = memory.verify()
    if as_json:
        put(json.dumps(asdict(found), ensure_ascii=False, indent=2))
    else:
        _compare({"now": found})
    if not found.ok:
        note("`agentkit memory repair` mends it")
        raise typer.Exit(1)


@memory_app.command()
def repair(as_json: AsJson = False, home: Home = HOME) -> None:
    """Index what is missing or stale, and remove what is left over.

    The exit code is 1 when something is still wrong afterwards.
    """
    with _open(home) as memory:
        done = memory.repair()
    if as_json:
        put(json.dumps(asdict(done), ensure_ascii=False, indent=2))
    else:
        _compare({"before": done.before, "after": done.after})
    if not done.after.ok:
        raise typer.Exit(1)


@memory_app.command()
def expire(as_json: AsJson = False, home: Home = HOME) -> None:
    """Delete the conversations that have expired, with all that was made of them."""
    with _open(home) as memory:
        _removed(memory.expire(), as_json, "nothing has expired")


def _compare(found: Mapping[str, Verification]) -> None:
    """Print verifications side by side, with what they name."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for name in found:
        table.add_column(name, justify="right")
    for name in ("items", "points", "pending", "failing", *_KINDS):
        counts = [getattr(each, name) for each in found.values()]
        wrong = name in _KINDS and counts[-1]
        table.add_row(Text(name), *(Text(f"{count:,}") for count in counts), style="red" if wrong else "")
    Console(highlight=False).print(table)
    last = [*found.values()][-1]
    for kind, ids in last.examples.items():
        note(f"{kind}: {', '.join(ids)}")
    for item, problem in last.problems.items():
        note(f"failing: {item}: {problem}")


def _removed(counts: Mapping[str, int], as_json: bool, nothing: str) -> None:
    """Print how many rows went, per table."""
    if as_json:
        put(json.dumps(dict(counts), indent=2))
    elif not any(counts.values()):
        note(nothing)
    else:
        put("removed " + ", ".join(f"{count} {table}" for table, count in counts.items() if count))
