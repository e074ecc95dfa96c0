"""`agentkit run`: one question to an agent, and its answer."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.cli.agent_option import AgentSource, ModelName, opened_agent, scope_of, store_of
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
    own_session,
    utf8,
)
from agentkit.cli.screen import note, put, put_json, tool_line
from agentkit.errors import Paused
from agentkit.run.engine.events import Event, TextDelta, ToolFinished, ToolStarted
from agentkit.run.engine.run_result import RunResult
from agentkit.run.journal.journal import Journal
from agentkit.server.served_runs.event_form import answer_form, call_form, output_form, usage_form
from agentkit_prompts.context.prompt_context import UserInput

__all__ = ["kwargs_of", "note_cut", "result_form", "run"]

WAITS = 3
"""Exit code of a run that waits for a decision."""


def run(
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="What to ask; `-` reads it from stdin. Not with --resume.")
    ] = None,
    agent: AgentSource = None,
    session: SessionName = None,
    user: UserName = None,
    kwarg: Kwargs = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve every tool call that needs a person.")] = False,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the journal there; `agentkit inspect` shows it.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Go on with the run of this journal; --yes approves what it waits for."),
    ] = None,
    model: ModelName = None,
    chat_template: ChatTemplateName = None,
    model_name: TemplateModel = None,
    embedder: EmbedderName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Ask an agent once, and end.

    The answer goes to stdout, all else to stderr. The exit code is 1 when the run failed and 3 when a tool call needs a
    person who was not asked.

    Example: agentkit run "What does Emma cost?" --agent shop.yaml --kwarg currency=CHF
    """
    if (text is None) == (resume is None):
        raise typer.BadParameter("give a TEXT to ask, or a journal to go on with: --resume FILE")
    asked: UserInput | Journal
    if resume is None:
        asked = UserInput(_question(text), additional_kwargs=kwargs_of(kwarg))
    else:
        if journal is not None or kwarg:
            raise typer.BadParameter(
                "--resume continues the file of the run with its input: leave --journal and --kwarg out"
            )
        if user is not None and session is None:
            raise typer.BadParameter("--resume reads the memory that the run read: leave --user out")
        asked = Journal.read(resume)
        session = session or asked.session
        if not user and asked.scope:
            user = asked.scope[1]
    with ExitStack() as closing:
        loaded = closing.enter_context(
            opened_agent(
                agent,
                home=home,
                model=model,
                embedder=embedder,
                tells=not as_json,
                chat_template=chat_template,
                model_name=model_name,
            )
        )
        options: dict[str, Any] = {}
        if session is not None:
            memory = closing.enter_context(store_of(loaded, home, user=user))
            options["session"] = own_session(memory, utf8(session))
        elif user is not None and resume is None:
            options["scope"] = scope_of(loaded.memory, user=user)
        if journal is not None:
            options["journal"] = journal
        if yes:
            options["approve"] = lambda call: True
        _ask(loaded, asked, options, as_json, journal or resume)


def _question(text: str | None) -> str:
    if text == "-":
        return sys.stdin.read()
    return utf8(text or "")


def _ask(
    loaded: LoadedAgent, asked: UserInput | Journal, options: dict[str, Any], as_json: bool, kept: Path | None
) -> None:
    # Half of a JSON document is of no use to the reader.
    streams = not as_json and loaded.agent.chain.output is str
    shown: list[str] = []

    def show(event: Event) -> None:
        if isinstance(event, TextDelta) and streams:
            put(event.text, end="")
            shown.append(event.text)
        elif isinstance(event, ToolStarted | ToolFinished) and not as_json:
            if shown and not shown[-1].endswith("\n"):
                put("")
                shown.append("\n")
            note(tool_line(event))

    try:
        agent = loaded.agent
        if isinstance(asked, Journal):
            result = asyncio.run(agent.resume(asked, on_event=show, **options))
        else:
            result = asyncio.run(agent.run(asked, on_event=show, **options))
    except Paused as paused:
        _report_waiting(paused, kept, as_json=as_json)
        raise typer.Exit(WAITS) from None
    if as_json:
        put_json(result_form(result))
        return
    if shown:
        put("")
    else:
        output = output_form(result.output)
        if not isinstance(output, str):
            output = json.dumps(output, ensure_ascii=False, indent=2)
        put(output)
    note_cut(result)


def _report_waiting(paused: Paused, kept: Path | None, *, as_json: bool) -> None:
    """Print the calls that wait for a decision, and how to approve them."""
    if as_json:
        put_json({"status": "waiting", "waiting": [call_form(call) for call in paused.calls]})
    note("these calls need a person, and nothing of them ran:")
    for call in paused.calls:
        note(f"  {call.name} {call.arguments}")
    if kept is None:
        note("ask again with --yes to approve them, or talk with `agentkit chat`")
    else:
        note(f"to approve them: agentkit run --resume {shlex.quote(str(kept))} --yes, with the same --agent")


def note_cut(result: RunResult[Any]) -> None:
    """Say so where the answer is not whole."""
    if result.finish_reason == "length":
        note("the answer was cut: it is as long as max_tokens of the settings, or the server, allows")


def result_form(result: RunResult[Any]) -> dict[str, Any]:
    """Return the answer of a run as JSON data."""
    return {
        "status": "finished",
        "run_id": result.run_id,
        **answer_form(result),
        "steps": result.steps,
        "usage": usage_form(result.usage),
    }


def kwargs_of(given: list[str] | None) -> dict[str, Any]:
    """Return additional kwargs of the command line: a value that is JSON is that, any other is text."""
    found: dict[str, Any] = {}
    for one in given or ():
        name, mark, value = utf8(one).partition("=")
        if not mark or not name.strip():
            raise typer.BadParameter(f"--kwarg {one!r:.60}: expected NAME=VALUE")
        if name.strip() in found:
            raise typer.BadParameter(f"--kwarg {name.strip()!r:.60} is given twice")
        try:
            found[name.strip()] = json.loads(value)
        except ValueError:
            found[name.strip()] = value
    return found
