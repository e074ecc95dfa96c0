"""The command line: its commands by their names, and how they end."""

from __future__ import annotations

from errno import EPIPE
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import agentkit
from agentkit.cli.commands.chat_command import chat
from agentkit.cli.commands.compose_command import compose
from agentkit.cli.commands.eval_command import evaluate
from agentkit.cli.commands.export_command import export_rows
from agentkit.cli.commands.ingest_command import ingest
from agentkit.cli.commands.inspect_command import inspect
from agentkit.cli.commands.mcp_command import mcp
from agentkit.cli.commands.memory_commands import memory_app
from agentkit.cli.commands.new_command import new
from agentkit.cli.commands.recall_command import recall
from agentkit.cli.commands.run_command import run_once
from agentkit.cli.commands.runs_commands import runs_app
from agentkit.cli.commands.schema_command import schema
from agentkit.cli.commands.serve_command import serve_agents
from agentkit.cli.commands.sessions_commands import sessions_app
from agentkit.cli.commands.templates_command import templates
from agentkit.cli.commands.token_command import token
from agentkit.cli.commands.worker_command import worker
from agentkit.cli.screen import LIBRARY_ERRORS, complain, note, prepare, put

__all__ = ["app", "run"]


class _Commands(TyperGroup):
    """The commands: errors of ours are one line on stderr."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LIBRARY_ERRORS as error:
            complain(str(error))
            raise typer.Exit(1) from error
        except OSError as error:  # a folder that may not be entered, a disk that is full
            if error.errno == EPIPE:  # who read the output left: nothing to report
                raise
            complain(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            note("\nstopped; what was stored stays")
            raise typer.Exit(130) from None


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


_ASKING = "Ask agents, and see what they are sent"
_KEEPING = "What is kept"
_SERVING = "Serve agents"
for name, command, panel in (
    ("new", new, _ASKING),
    ("chat", chat, _ASKING),
    ("run", run_once, _ASKING),
    ("compose", compose, _ASKING),
    ("schema", schema, _ASKING),
    ("templates", templates, _ASKING),
    ("inspect", inspect, _ASKING),
    ("eval", evaluate, _ASKING),
    ("ingest", ingest, _KEEPING),
    ("recall", recall, _KEEPING),
    ("export", export_rows, _KEEPING),
    ("serve", serve_agents, _SERVING),
    ("token", token, _SERVING),
    ("mcp", mcp, _SERVING),
    ("worker", worker, _SERVING),
):
    app.command(name, rich_help_panel=panel)(command)
app.add_typer(sessions_app, name="sessions", rich_help_panel=_KEEPING)
app.add_typer(memory_app, name="memory", rich_help_panel=_KEEPING)
app.add_typer(runs_app, name="runs", rich_help_panel=_SERVING)
