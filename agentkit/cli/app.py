"""The commands: which there are, where each is, and how they end."""

from __future__ import annotations

import gc
from errno import EPIPE
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

import agentkit
from agentkit.cli.screen import complain, library_errors, note, prepare, put

__all__ = ["app", "run"]


class _Entry(NamedTuple):
    name: str
    place: str
    """Module and name of the command, or of a group of commands. It is imported when it is called."""
    help: str
    """The first sentences of its own help."""


_ENTRIES = {
    "Ask agents, and see what they are sent": (
        _Entry(
            "new",
            "new_command:new",
            "Make a folder with an agent to begin with: `agent.yaml`, a prompt, a tool, and a test that passes.",
        ),
        _Entry(
            "chat", "chat_command:chat", "Talk with an agent; without --agent with one that recalls what was ingested."
        ),
        _Entry("run", "run_command:run_once", "Ask an agent once, and end."),
        _Entry(
            "compose", "compose_command:compose", "Show what would be sent for TEXT, layer by layer. Nothing is sent."
        ),
        _Entry(
            "schema",
            "schema_command:schema",
            "Show which additional kwargs the prompts of an agent require, and which prompts need them.",
        ),
        _Entry(
            "templates",
            "templates_command:templates",
            "List the chat templates that --chat-template takes by name, and which have a place for tools.",
        ),
        _Entry(
            "inspect",
            "inspect_command:inspect",
            "Show runs and conversations on a page: every prompt as layers, with where each piece of it is from.",
        ),
        _Entry("eval", "eval_command:evaluate", "Ask a model about every row of a dataset, and score its answers."),
    ),
    "What is kept": (
        _Entry("ingest", "ingest_command:ingest", "Read files into memory, to be recalled when you ask."),
        _Entry("recall", "recall_command:recall", "Show what memory finds for QUESTION, best first, with scores."),
        _Entry(
            "export",
            "export_command:export_rows",
            "Write fine-tuning rows: for every answer in stored conversations the prompt that the agent would send, "
            "and it.",
        ),
        _Entry("sessions", "sessions_commands:sessions_app", "Conversations that are stored: list, show, export."),
        _Entry("memory", "memory_commands:memory_app", "Check, repair, back up, move, erase and measure a memory."),
    ),
    "Serve agents": (
        _Entry(
            "serve",
            "serve_command:serve_agents",
            "Serve agents over HTTP: OpenAI-compatible endpoints, sessions, runs and the inspector.",
        ),
        _Entry(
            "token",
            "token_command:token",
            "Make a token for `agentkit serve`, and show it this once: the file holds its hash only.",
        ),
        _Entry(
            "mcp",
            "mcp_command:mcp",
            "Offer agents as tools of an MCP server: each call is a run, and the client hears how far it is.",
        ),
        _Entry(
            "worker",
            "worker_command:worker",
            "Do the durable runs of the agents in MODULE, or of --agent, and those of workers that died.",
        ),
        _Entry("runs", "runs_commands:runs_app", "Durable runs: look at them, decide, go on, delete."),
    ),
}
"""The commands, by the panel that shows them in the help."""
_PLACES = {entry.name: entry.place for entries in _ENTRIES.values() for entry in entries}


class _Commands(TyperGroup):
    """The commands: errors of ours are one line on stderr."""

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
        except OSError as error:  # a folder that may not be entered, a disk that is full
            if error.errno == EPIPE:  # who read the output left: nothing to report
                raise
            complain(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            note("\nstopped; what was stored stays")
            raise typer.Exit(130) from None


def _command(name: str) -> Any:
    """Import a command, and return it."""
    module, _, attribute = _PLACES[name].partition(":")
    found = getattr(import_module(f"agentkit.cli.commands.{module}"), attribute)
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
    gc.disable()  # until the command is imported: what that makes stays, and is not searched for garbage meanwhile
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


for panel, entries in _ENTRIES.items():
    for entry in entries:
        app.command(entry.name, rich_help_panel=panel, help=entry.help)(_listed)
