"""Output of commands: answers and tables on stdout, notes and errors on stderr, without control characters."""

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

from agentkit_prompts.errors import start_of

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from agentkit.run.engine.events import ToolFinished, ToolStarted
    from agentkit_prompts.composition.composition import Composition
    from agentkit_prompts.composition.explain import LayerRow
    from agentkit_prompts.composition.why import Why
    from agentkit_prompts.context.messages import ToolCall

_ORDER_AND_LINES = r"\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Unicode line ends, and characters that change the order of displayed text: they could hide arguments of a call from
the person who approves the call.
"""
_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_ORDER_AND_LINES}]")
_STEERING_IN_JSON = re.compile(rf"[\x7f-\x9f\ud800-\udfff{_ORDER_AND_LINES}]")
"""Characters that are valid in JSON text but may control a terminal or end a line."""
_IN_USE = re.compile(r"the index is in use by (process \d+|another process)")
_IN_USE_NOTE = "recall is simpler while {} has this folder open: BM25 alone"
_BAR_WIDTH = 12
"""Characters of a bar of 100 %."""
_LINE_WIDTH = 200
"""Characters of a line if the output is no terminal."""
_MAX_SHORT = 300
"""Maximum printed characters of the arguments or the result of a tool."""


def library_errors() -> tuple[type[Exception], ...]:
    """Return the classes of errors that are printed as a line instead of a traceback."""
    from agentkit.errors import AgentError
    from agentkit.models.model_errors import ModelError
    from agentkit_memory.errors import StoreError
    from agentkit_prompts.errors import PromptError
    from agentkit_tools.errors import ToolError

    return AgentError, ModelError, PromptError, StoreError, ToolError


def prepare() -> None:
    """Configure the standard streams, so that no character of a text raises an encoding error."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # Tests can replace a stream by another class.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a warning of agentkit as a note, without the line of code."""
    if category.__module__.partition(".")[0].startswith("agentkit"):
        note(f"warning: {message}")
    else:
        _show_other_warning(message, category, *where, **more)


_show_other_warning = warnings.showwarning


def plain(text: str) -> str:
    """Return a text without characters that control a terminal."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def _without_tabs(text: str) -> str:
    # Rich expands tabs piece by piece, which takes a second for 200,000 tabs.
    return plain(text).expandtabs()


def put(text: str, *, end: str = "\n") -> None:
    """Print text on stdout without control characters."""
    sys.stdout.write(plain(text) + end)
    sys.stdout.flush()


def put_exactly(text: str) -> None:
    """Print unchanged text into a pipe; at a terminal, print it without control characters and with a line end."""
    if sys.stdout.isatty():
        put(plain(text).removesuffix("\n"))
    else:
        sys.stdout.write(text)
        sys.stdout.flush()


def put_json(data: Any) -> None:
    """Print data as JSON on stdout. Characters that control a terminal are escaped, and NaN and infinity are null."""
    try:
        text = json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(data), parse_constant=lambda name: None)
        text = json.dumps(finite, ensure_ascii=False, indent=2)
    sys.stdout.write(_STEERING_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Print a note on stderr."""
    _errors().print(Text(_without_tabs(text)), style="dim", soft_wrap=True)


def complain(text: str) -> None:
    """Print an error on stderr."""
    _errors().print(Text.assemble(("agentkit: ", "bold red"), _without_tabs(text)), soft_wrap=True)


def fail(text: str, *, code: int = 1) -> NoReturn:
    """Print an error on stderr and exit with an exit code."""
    complain(text)
    raise Exit(code)


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


@contextmanager
def logged() -> Iterator[None]:
    """Print log records of agentkit on stderr during a `with` block."""
    handler = logging.StreamHandler()
    handler.setFormatter(_PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    with _handled(handler):
        yield


@contextmanager
def warned() -> Iterator[None]:
    """Print a summary of each warning in the log as a note during a `with` block, unless `logged` prints it."""
    with _handled(_Notes(logging.WARNING)):
        yield


@contextmanager
def calls_shown() -> Iterator[None]:
    """Print no warning about a failed call of a run during a `with` block, which prints the `tool_line` of each call.

    Failed calls of inner runs have no such line.
    """
    handlers = [each for each in logging.getLogger("agentkit").handlers if isinstance(each, _Notes)]
    for handler in handlers:
        handler.addFilter(_has_no_event)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(_has_no_event)


def _has_no_event(record: logging.LogRecord) -> bool:
    return not getattr(record, "has_event", False)


@contextmanager
def _handled(handler: logging.Handler) -> Iterator[None]:
    log = logging.getLogger("agentkit")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log = logging.getLogger("agentkit")
        if not any(isinstance(handler.formatter, _PlainFormatter) for handler in log.handlers):
            summary = getattr(record, "summary", record.getMessage())
            note(f"{record.levelname.lower()}: {start_of(summary, _MAX_SHORT)}")


def progress_bar(amount: ProgressColumn | None = None) -> Progress:
    """Return a progress bar on stderr, which is hidden without a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), amount or MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def put_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Collection[str] = ()) -> None:
    """Print a table on stdout; the columns of `numbers` are aligned to the right."""
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


def note_call(call: ToolCall, *, agent: str = "", is_whole: bool = False) -> None:
    """Print a call that needs approval: a line for the call, and a line for each argument.

    Args:
        call: The call.
        agent: Name of the inner agent that makes the call.
        is_whole: True to cut no value.
    """
    for line in call_lines(call, agent=agent, is_whole=is_whole):
        note(line)


def call_lines(call: ToolCall, *, agent: str = "", is_whole: bool = False) -> list[str]:
    """Return the lines of `note_call`."""
    from agentkit_tools.calling.shown_arguments import argument_lines

    origin = call.id
    if agent:
        origin += f", of {agent}"
    lines = argument_lines(call.arguments, is_whole=is_whole)
    end = "without arguments"
    if lines:
        end = "with:"
    return [_one_line(f"{call.name} ({origin}) {end}"), *[f"  {line}" for line in lines]]


def is_cut(call: ToolCall) -> bool:
    """True if `call_lines` cuts a value of the call."""
    return call_lines(call) != call_lines(call, is_whole=True)


def _one_line(text: str) -> str:
    return plain(text).replace("\n", "\ufffd")


def approval_line(call: ToolCall) -> str:
    """Return the note of an approved call, or of an approved question of a guard."""
    return _one_line(f"approved {call.name} ({call.id})")


def tool_line(event: ToolStarted | ToolFinished) -> str:
    """Return the note of a started or finished tool call."""
    from agentkit.run.engine.events import ToolStarted

    if isinstance(event, ToolStarted):
        return f"calls {event.call.name} {start_of(event.call.arguments, _MAX_SHORT)}"
    return f"  {event.result.status}: {start_of(event.result.message.text, _MAX_SHORT)}"


def layer_table(composition: Composition) -> None:
    """Print the layers of a composition with tokens, share, source and the effect of the budget."""
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
    """Return the data of `layer_table` as JSON data."""
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


def why_form(why: Why) -> dict[str, Any]:
    """Return the positions of a value in a composition as JSON data."""
    spans = [{"message": span.message, "prompt": span.prompt, "line": span.line} for span in why.spans]
    return {"pointer": why.pointer, "reason": why.reason, "spans": spans}


def _cells(row: LayerRow) -> Sequence[Text]:
    # A layer with any tokens has a visible bar.
    bar = "█" * max(round(row.share * _BAR_WIDTH), 1 if row.tokens else 0)
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
    """Return a problem of a recall as a note, with a shorter text if another process has opened the index."""
    match = _IN_USE.search(problem)
    if match is None:
        return problem
    return _IN_USE_NOTE.format(match[1])


def _wide_console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _LINE_WIDTH
    return console


def _errors() -> Console:
    return Console(stderr=True, highlight=False)
