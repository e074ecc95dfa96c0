"""The commands: what they take, and how they end."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from errno import EPIPE
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import DownloadColumn
from typer.core import TyperGroup

import agentkit
from agentkit.cli.agent_option import AgentSource, ModelName, apart, memory_of, opened_agent, scope_of, store_of
from agentkit.cli.chat import Chat
from agentkit.cli.eval_command import evaluate
from agentkit.cli.inspect_command import inspect
from agentkit.cli.mcp_command import mcp
from agentkit.cli.memory_commands import memory_app
from agentkit.cli.new_command import new
from agentkit.cli.options import (
    HOME,
    AsJson,
    ChatTemplateName,
    EmbedderName,
    Home,
    Kwargs,
    SessionName,
    TemplateModel,
    UserName,
    has_memory,
    open_memory,
    own_session,
    utf8,
)
from agentkit.cli.recall_command import recall
from agentkit.cli.run_command import kwargs_of, run_once
from agentkit.cli.runs_commands import runs_app
from agentkit.cli.schema_command import schema
from agentkit.cli.screen import (
    LIBRARY_ERRORS,
    complain,
    layer_table,
    layers_form,
    note,
    prepare,
    progress_bar,
    put,
    put_exactly,
    put_json,
)
from agentkit.cli.serve_commands import serve_agents, token
from agentkit.cli.session_commands import export_rows, sessions_app
from agentkit.cli.templates_command import templates
from agentkit.cli.worker_command import worker
from agentkit.models.completion.completion_model import CompletionModel
from agentkit.models.http.endpoint import EndpointModel
from agentkit.models.offline.offline_model import OfflineModel
from agentkit_memory import IngestOptions
from agentkit_memory.ingest.report import IngestProgress, IngestReport
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.prompt_context import UserInput

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


def ingest(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", readable=False, help="Text, Markdown, HTML, PDF or JSON lines files, or folders of them."
        ),
    ],
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Take what can be read of damaged files, and report what cannot.")
    ] = False,
    text: Annotated[
        list[str] | None, typer.Option(metavar="FIELD", help="Field of a JSON record that is its text. Repeatable.")
    ] = None,
    title: Annotated[
        list[str] | None, typer.Option(metavar="FIELD", help="Field of a JSON record that is its title. Repeatable.")
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="FIELD", help="Field of a JSON record to keep with it. Repeatable.")
    ] = None,
    agent: AgentSource = None,
    embedder: EmbedderName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Read files into memory, to be recalled when you ask.

    What is stored already is skipped, so it may be stopped and started again at any time. The exit code is 1 when a
    file could not be read, or none was found; the others are stored.

    Example: agentkit ingest docs/ --lenient
    """
    named = {"text": text, "title": title, "metadata": metadata}
    fields: dict[str, Any] = {f"record_{field}": tuple(names) for field, names in named.items() if names}
    options = IngestOptions(lenient=lenient, **fields)
    opened = memory_of(agent, home, embedder) if agent else open_memory(home, embedder=embedder)
    with opened as memory, progress_bar(DownloadColumn()) as bar:
        task = bar.add_task("reading", total=None)

        def progress(now: IngestProgress) -> None:
            text = f"reading {now.done}/{now.total} files, {now.chunks} chunks"
            bar.update(task, description=text, completed=now.done_bytes, total=now.total_bytes)

        report = memory.ingest(paths, options=options, on_progress=progress)
    if as_json:
        put_json(_report_form(report))
    else:
        _show_report(report, f"the memory of {agent}" if agent else str(home))
    if report.errors or not report.files:
        raise typer.Exit(1)


def _report_form(report: IngestReport) -> dict[str, Any]:
    counts = {name: len(getattr(report, name)) for name in ("added", "changed", "unchanged", "removed")}
    problems = {name: [str(error) for error in getattr(report, name)] for name in ("repaired", "errors")}
    return {**counts, "chunks": report.chunks, "pending": report.pending, **problems}


def _show_report(report: IngestReport, place: str) -> None:
    counts = {"new": report.added, "changed": report.changed, "unchanged": report.unchanged, "removed": report.removed}
    files = ", ".join(f"{len(names)} {kind}" for kind, names in counts.items() if names)
    if files:
        put(f"{files}; {report.chunks} chunks written to {place}")
    if report.pending:
        note(f"{report.pending} chunks and messages wait to be indexed, and are found by their words until then")
    for error in (*report.repaired, *report.errors):
        complain(str(error))
    if not files and not report.errors:
        complain("there is no text, Markdown, HTML, PDF or JSON lines file in what was given")


def chat(
    agent: AgentSource = None,
    session: SessionName = None,
    user: UserName = None,
    model: ModelName = None,
    once: Annotated[str | None, typer.Option(metavar="TEXT", help="Answer this, and end.")] = None,
    kwarg: Kwargs = None,
    chat_template: ChatTemplateName = None,
    model_name: TemplateModel = None,
    embedder: EmbedderName = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="A line of JSON for each line: an answer once it is whole, or what a command shows."
        ),
    ] = False,
    home: Home = HOME,
) -> None:
    """Talk with an agent; without --agent with one that recalls what was ingested.

    Reads from the terminal or from a pipe, a turn a line. /layers shows what was sent last, /why PLACE where something
    in it is from, /undo takes the last turn back, /fork NAME goes on in a copy, /cost shows what it took, /quit leaves.
    A tool call that needs a person is asked about at a terminal, and denied elsewhere. Answers go to stdout, everything
    else to stderr.

    Example: agentkit chat --agent shop.yaml --session monday
    """
    with (
        opened_agent(
            agent,
            home=home,
            model=model,
            embedder=embedder,
            tells=True,
            chat_template=chat_template,
            model_name=model_name,
        ) as loaded,
        store_of(loaded, home, user=user) as memory,
    ):
        name = session or f"{datetime.now().astimezone():%Y-%m-%d-%H%M%S}-{os.getpid()}"
        talk = Chat(loaded.agent, memory, utf8(name), kwargs_of(kwarg), as_json=as_json)
        before = len(talk.session.conversation)
        if session and not before and apart(loaded, user=user, name=utf8(name)):
            note(f"{name} is from before {loaded.name} had a memory and stays apart: this conversation is a new one")
        if isinstance(loaded.agent.chain.model, OfflineModel) and loaded.agent.specs:
            note(f"try: {_call_of(loaded.agent.specs[0])}")
        note(f"session {talk.session.id}{f', {before} messages so far' if before else ''}")
        if once is None:
            talk.talk()
        else:
            talk.ask(utf8(once))


def _call_of(tool: ToolSpec) -> str:
    """Return what has the offline stand-in call a tool."""
    required: Sequence[str] = tool.parameters.get("required", ())
    properties = tool.parameters.get("properties", {})
    texts = {name for name, one in properties.items() if isinstance(one, Mapping) and one.get("type") == "string"}
    arguments = " and ".join([f'{name}="..."' if name in texts else f"{name}=..." for name in required])
    return f"Use {tool.name}{f' with {arguments}' if arguments else ''}."


def compose(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What you would ask.")],
    agent: AgentSource = None,
    budget: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Tokens that may be sent; layers give way to fit.")
    ] = None,
    kwarg: Kwargs = None,
    as_json: Annotated[bool, typer.Option("--json", help="The table and the request body, as JSON.")] = False,
    as_text: Annotated[
        bool, typer.Option("--text", help="What would be sent, as text: as a chat template writes it, if there is one.")
    ] = False,
    model: ModelName = None,
    chat_template: ChatTemplateName = None,
    model_name: TemplateModel = None,
    session: SessionName = None,
    user: UserName = None,
    embedder: EmbedderName = None,
    home: Home = HOME,
) -> None:
    """Show what would be sent for TEXT, layer by layer. Nothing is sent.

    It is what the agent's model would get, or that of --model. With --chat-template it is what a local model would get,
    also with an agent that has another model.

    Example: agentkit compose "What does Emma cost?" --agent shop.yaml
    """
    if as_json and as_text:
        raise typer.BadParameter("choose one of --json and --text")
    template = chat_template or model_name
    asked = UserInput(utf8(text), additional_kwargs=kwargs_of(kwarg))
    is_rewritten = agent is not None and model is None  # whatever model the agent has
    of_model = None if is_rewritten else template
    with opened_agent(agent, home=home, model=model, embedder=embedder, makes=False, chat_template=of_model) as loaded:
        asks = loaded.agent
        if is_rewritten and template:
            asks = asks.but(model=CompletionModel(asks.chain.model.name, template))
        if budget is not None:
            asks = asks.but(budget=budget)
        if session is None or (loaded.memory is None and not has_memory(home)):
            composition = asks.compose(asked, scope=None if user is None else scope_of(loaded.memory, user=user))
        else:
            with store_of(loaded, home, user=user) as memory:
                composition = asks.compose(asked, session=own_session(memory, utf8(session)))
    writer = asks.chain.model
    if isinstance(writer, OfflineModel):
        writer = writer.writer or writer
    if as_json:
        body = writer.request_body(composition) if isinstance(writer, EndpointModel) else composition.to_openai()
        put_json({**layers_form(composition), "request": body})
        return
    written = None
    if isinstance(writer, CompletionModel):  # also for the table: a template that cannot write it is an error
        written = writer.request_body(composition)["prompt"]
        _note_template(writer)
    if as_text:
        put_exactly(composition.text if written is None else written)
    else:
        layer_table(composition)


def _note_template(model: CompletionModel) -> None:
    """Say which chat template was taken, what ends a reply, and how calls are read."""
    template = model.chat_template
    name = getattr(template, "file", None) or getattr(template, "title", type(template).__name__)
    stop = ", ".join(map(repr, model.stop_words)) or "none"
    calls = getattr(template, "tool_call_format", None) or "any known format"
    note(f"chat template {name}; stop words: {stop}; tool calls: {calls}")


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
