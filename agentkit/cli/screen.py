"""What is printed where: answers and tables on stdout, all else on stderr, and nothing that steers a terminal."""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Exit

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from agentkit.run.engine.events import ToolFinished, ToolStarted
    from agentkit_prompts.composition.composition import Composition
    from agentkit_prompts.composition.explain import LayerRow
    from agentkit_prompts.composition.why import Why

__all__ = [
    "complain",
    "degraded_note",
    "fail",
    "layer_table",
    "layers_form",
    "library_errors",
    "logged",
    "note",
    "plain",
    "prepare",
    "progress_bar",
    "put",
    "put_exactly",
    "put_json",
    "put_table",
    "short",
    "tool_line",
    "why_form",
]

_ORDERING = r"\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Line ends that some terminals have, and what makes text read in another order than it is: whoever decides about a
call would not see what it does.
"""
_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_ORDERING}]")
_STEERING = re.compile(rf"[\x7f-\x9f\ud800-\udfff{_ORDERING}]")
"""Characters that JSON text may hold as they are, and a terminal or a line reader may not."""
_IN_USE = re.compile(r"the index is in use by (process \d+|another process)")
_BAR = 12
"""Characters of a bar that stands for all tokens."""
_WIDE = 200
"""Characters of a line where there is no terminal to fit."""
_MAX_SHOWN = 300
"""Characters of a tool's arguments or result that are shown; the model gets all of them."""


def library_errors() -> tuple[type[Exception], ...]:
    """Return the errors that are one line on stderr instead of a traceback."""
    from agentkit.errors import AgentError
    from agentkit.models.model_errors import ModelError
    from agentkit_memory.errors import StoreError
    from agentkit_prompts.errors import PromptError
    from agentkit_tools.errors import ToolError

    return AgentError, ModelError, PromptError, StoreError, ToolError


def prepare() -> None:
    """Let no character of a document, a model or the command line break a stream."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # A test may have replaced a stream.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a warning of ours as a remark, without the line of code that it came from."""
    if category.__module__.partition(".")[0].startswith("agentkit"):
        note(f"warning: {message}")
    else:
        _show_other_warning(message, category, *where, **more)


_show_other_warning = warnings.showwarning


def plain(text: str) -> str:
    """Return the text without control characters: a document or a model must not steer the terminal."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def put(text: str, *, end: str = "\n") -> None:
    """Print text on stdout as it is, apart from control characters."""
    sys.stdout.write(plain(text) + end)
    sys.stdout.flush()


def put_exactly(text: str) -> None:
    """Print text on stdout to the character: into a pipe nothing is added; at a terminal a line end, and no control."""
    if sys.stdout.isatty():
        put(plain(text).removesuffix("\n"))
    else:
        sys.stdout.write(text)
        sys.stdout.flush()


def put_json(data: Any) -> None:
    """Print data as JSON on stdout: characters that steer a terminal are escaped, so that nothing is lost."""
    text = json.dumps(data, ensure_ascii=False, indent=2)
    sys.stdout.write(_STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Print a remark on stderr: what happens, as opposed to what was asked for."""
    _errors().print(Text(plain(text)), style="dim", soft_wrap=True)


def complain(text: str) -> None:
    """Print an error on stderr."""
    _errors().print(Text.assemble(("agentkit: ", "bold red"), plain(text)), soft_wrap=True)


def fail(text: str, *, code: int = 1) -> NoReturn:
    """Print an error on stderr, and end the command with an exit code."""
    complain(text)
    raise Exit(code)


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


@contextmanager
def logged() -> Iterator[None]:
    """Print the warnings and errors that agentkit logs on stderr, until the end of the block."""
    handler = logging.StreamHandler()
    handler.setFormatter(_PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("agentkit")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def progress_bar(amount: ProgressColumn | None = None) -> Progress:
    """Return a bar on stderr; where that is no terminal, one that nobody sees."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), amount or MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def put_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Collection[str] = ()) -> None:
    """Print rows on stdout; the columns that hold `numbers` stand to the right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        is_number = column in numbers
        justify: Literal["left", "right"] = "left"
        if is_number:
            justify = "right"
        table.add_column(column, justify=justify, no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*[cell if isinstance(cell, Text) else Text(plain(str(cell))) for cell in row])
    _wide_console().print(table)


def short(text: str) -> str:
    """Return what is shown of a text that may be long."""
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[:_MAX_SHOWN]}..."


def tool_line(event: ToolStarted | ToolFinished) -> str:
    """Return what is noted of a tool call that begins or ends."""
    from agentkit.run.engine.events import ToolStarted

    if isinstance(event, ToolStarted):
        return f"calls {event.call.name} {short(event.call.arguments)}"
    return f"  {event.result.status}: {short(event.result.message.text)}"


def layer_table(composition: Composition) -> None:
    """Print what is sent, layer by layer: tokens, share, where it is from, and what a budget did to it."""
    rows = composition.explain()
    total = f"{composition.tokens:,}"
    if composition.budget is not None:
        total += f" of {composition.budget.tokens:,}"
    table = Table(box=None, header_style="bold", footer_style="bold", pad_edge=False, show_footer=True)
    table.add_column("layer", "total", style="cyan", overflow="fold")
    table.add_column("prompt", overflow="fold")
    table.add_column("tokens", total, justify="right", no_wrap=True)
    table.add_column("share", no_wrap=True)
    table.add_column("source", f"counted by {composition.counter.name}", overflow="fold")
    table.add_column("status", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    console = _wide_console()
    console.print(table)
    for row in rows:
        if row.why:
            console.print(Text(plain(f"{row.layer} {row.status}: {row.why}")), soft_wrap=True)


def layers_form(composition: Composition) -> dict[str, Any]:
    """Return what `layer_table` prints as JSON data."""
    budget = None
    if composition.budget is not None:
        budget = composition.budget.tokens
    return {
        "tokens": composition.tokens,
        "budget": budget,
        "counter": composition.counter.name,
        "prefix_hash": composition.prefix_hash,
        "layers": composition.explain().to_dicts(),
    }


def why_form(found: Why) -> dict[str, Any]:
    """Return where a part of a composition ended up as JSON data."""
    spans = [{"message": one.message, "prompt": one.prompt, "line": one.line} for one in found.spans]
    return {"pointer": found.pointer, "reason": found.reason, "spans": spans}


def _cells(row: LayerRow) -> Sequence[Text]:
    # A layer with any tokens has a bar that can be seen.
    bar = "█" * max(round(row.share * _BAR), 1 if row.tokens else 0)
    style = {"trimmed": "yellow", "dropped": "red"}.get(row.status, "dim")
    return (
        Text(plain(row.layer)),
        Text(plain(row.prompt)),
        Text(f"{row.tokens:,}"),
        Text.assemble(f"{row.share:4.0%} ", (bar, "green")),
        Text(plain(row.source), "dim"),
        Text(row.status, style),
    )


def degraded_note(problem: str) -> str:
    """Return what is shown of what kept a recall from its best: who has the index, in short, or what it is."""
    found = _IN_USE.search(problem)
    if found is None:
        return problem
    return f"recall is simpler while {found[1]} has this folder open: BM25 alone"


def _wide_console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def _errors() -> Console:
    return Console(stderr=True, highlight=False)
