"""The command line: its commands, their modules, and their exit codes."""

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
from agentkit.cli.screen import complain, library_errors, note, prepare, put, warned

_FOLDER = Path(__file__).parent / "commands"
_COMMANDS = {
    "Build and run agents": (
        "new",
        "chat",
        "run",
        "compose",
        "schema",
        "models",
        "templates",
        "inspect",
        "eval",
        "optimise",
    ),
    "Stored data": ("ingest", "recall", "export", "sessions", "memory", "prompts"),
    "Serve agents": ("serve", "token", "mcp", "worker", "runs"),
}
"""Names of commands by panel of the help. The command `x` is the function `x` of `x_command.py`, or `x_app` of
`x_commands.py` if it has subcommands. A module is imported when its command is called."""


class _Commands(TyperGroup):
    """The commands. An error of agentkit is one line on stderr."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the placeholder of a command, with its help from the source file: an import would take longer."""
        placeholder = super().get_command(ctx, cmd_name)
        if placeholder is not None:
            text = _file(cmd_name).read_text("utf-8")
            docstring = re.search(rf'^def {cmd_name}\(.*?"""(.+?)(?:\n\n|""")', text, re.DOTALL | re.MULTILINE)
            placeholder.help = ""
            if docstring:
                placeholder.help = " ".join(docstring[1].split())
        return placeholder

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the imported command instead of its placeholder."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        if placeholder is None:
            return name, None, rest
        return name, _command(str(name)), rest

    def invoke(self, ctx: Any) -> Any:
        try:
            with warned():
                return super().invoke(ctx)
        except typer.Exit:
            # Before the next clause, which imports the errors of all packages.
            raise
        except library_errors() as error:
            from agentkit.errors import SEE_LOG

            complain(str(error).removesuffix(SEE_LOG))
            raise typer.Exit(1) from error
        except OSError as error:
            # The reader of the output stopped reading, such as `head`: typer ends the command without an error.
            if error.errno == EPIPE:
                raise
            problem = str(error)
            if error.filename:
                problem = f"{error.strerror or error}: {error.filename}"
            complain(problem)
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            note("\nstopped; stored data is not lost")
            raise typer.Exit(130) from None


def _file(name: str) -> Path:
    return next(_FOLDER.glob(f"{name}_command*.py"))


def _command(name: str) -> Any:
    """Import a command and return it."""
    module = vars(import_module(f"agentkit.cli.commands.{_file(name).stem}"))
    command = module.get(f"{name}_app", module[name])
    # After the import, `run` has disabled the garbage collector: the objects so far are never searched.
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    # Typer builds a command only within a group, and the group needs a callback.
    parent = typer.Typer(add_completion=False, rich_markup_mode=app.rich_markup_mode)
    parent.callback()(_placeholder)
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name)
    else:
        parent.command(name)(command)
    group: Any = get_command(parent)
    return group.commands[name]


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Markdown fills paragraphs to the width of the terminal.
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> None:
    """Run the command of the arguments and exit."""
    prepare()
    # The objects that imports create stay alive: collecting garbage among them would only take time.
    gc.disable()
    app(prog_name="agentkit")


def _version(is_requested: bool) -> None:
    if is_requested:
        put(f"agentkit {agentkit.__version__}")
        raise typer.Exit


@app.callback()
def agentkit_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Build, run, inspect and serve agents, and show their prompts layer by layer.

    --agent names an agent file or an agent of a Python module; without it the commands use a default agent, which
    answers from the ingested documents.

    With OPENAI_API_KEY or OPENAI_BASE_URL, a language model answers (OPENAI_MODEL names it); without both, an offline
    model quotes recalled documents.

    Example: agentkit new shop && cd shop && agentkit chat --agent agent.yaml
    """


def _placeholder() -> None:
    """Represent a command until it is imported."""


for panel, names in _COMMANDS.items():
    for name in names:
        app.command(name, rich_help_panel=panel)(_placeholder)
