"""The commands: which there are, where each is, and how they end."""

from __future__ import annotations

import gc
import re
from errno import EPIPE
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

import agentkit
from agentkit.cli.screen import complain, library_errors, note, prepare, put

__all__ = ["app", "run"]

_FOLDER = Path(__file__).parent / "commands"
_COMMANDS = {
    "Ask agents, and see what they are sent": (
        "new",
        "chat",
        "run",
        "compose",
        "schema",
        "templates",
        "inspect",
        "eval",
    ),
    "What is kept": ("ingest", "recall", "export", "sessions", "memory"),
    "Serve agents": ("serve", "token", "mcp", "worker", "runs"),
}
"""By the panel that shows them in the help. `name` is the function of that name in `name_command.py`, imported when it
is called; where it has commands of its own they are in `name_commands.py`, in `name_app`."""


class _Commands(TyperGroup):
    """The commands: errors of ours are one line on stderr."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return what lists a command: it is not imported, its help is read where it is written."""
        listed = super().get_command(ctx, cmd_name)
        if listed is not None:
            text = _file(cmd_name).read_text("utf-8")
            begins = re.search(rf'^def {cmd_name}\(.*?"""(.+?)(?:\n\n|""")', text, re.DOTALL | re.MULTILINE)
            listed.help = ""
            if begins:
                listed.help = " ".join(begins[1].split())
        return listed

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command itself in place of what lists it."""
        name, listed, left = super().resolve_command(ctx, args)
        return name, None if listed is None else _command(str(name)), left

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except library_errors() as error:
            complain(str(error))
            raise typer.Exit(1) from error
        except OSError as error:
            # The reader of the output has ended, as `head` does. There is nothing to report.
            if error.errno == EPIPE:
                raise
            problem = str(error)
            if error.filename:
                problem = f"{error.strerror or error}: {error.filename}"
            complain(problem)
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            note("\nstopped; what was stored stays")
            raise typer.Exit(130) from None


def _file(name: str) -> Path:
    return next(_FOLDER.glob(f"{name}_command*.py"))


def _command(name: str) -> Any:
    """Import a command, and return it."""
    module = vars(import_module(f"agentkit.cli.commands.{_file(name).stem}"))
    found = module.get(f"{name}_app", module[name])
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    alone = typer.Typer(add_completion=False, rich_markup_mode=app.rich_markup_mode)
    alone.callback()(_listed)
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name)
    else:
        alone.command(name)(found)
    group: Any = get_command(alone)
    return group.commands[name]


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which fills paragraphs to the width of the terminal
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> None:
    """Run the command that the arguments name, and end the process."""
    prepare()
    # Objects that the import of the command creates stay, so searching them for garbage is wasted time.
    gc.disable()
    app(prog_name="agentkit")


def _version(wanted: bool) -> None:
    if wanted:
        put(f"agentkit {agentkit.__version__}")
        raise typer.Exit


@app.callback()
def agentkit_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it, and end.")
    ] = False,
) -> None:
    """Build, ask, inspect and serve agents, and see the prompt that is sent, layer by layer.

    --agent names an agent file or an agent of a Python module; without it the commands ask an agent of their own, which
    answers from the documents that were ingested.

    With OPENAI_API_KEY or OPENAI_BASE_URL set, a real model answers (OPENAI_MODEL names it); without either, an
    offline stand-in that quotes what was recalled.

    Example: agentkit new shop && cd shop && agentkit chat --agent agent.yaml
    """


def _listed() -> None:
    """Stand for a command that is not imported, in the list of them."""


for panel, names in _COMMANDS.items():
    for name in names:
        app.command(name, rich_help_panel=panel)(_listed)
