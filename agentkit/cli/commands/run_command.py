"""`agentkit run`: runs an agent once."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkit.cli.agent_option import AgentSource, ModelName, conversation_memory, opened_agent, scope_of
from agentkit.cli.options import (
    HOME,
    AsJson,
    ChatTemplateName,
    EmbedderName,
    Home,
    Kwargs,
    LocaleName,
    SessionName,
    SharedNames,
    Tags,
    TemplateModel,
    TenantName,
    UserName,
    text_session,
    utf8,
)
from agentkit.cli.screen import approval_line, calls_shown, note, note_call, put, put_json, tool_line

if TYPE_CHECKING:
    from agentkit.agent_files.loaded_agent import LoadedAgent
    from agentkit.errors import Paused
    from agentkit.run.engine.events import Event
    from agentkit.run.engine.run_result import RunResult
    from agentkit.run.journal.journal import Journal
    from agentkit_prompts.context.prompt_context import UserInput

PAUSED = 3
"""Exit code of a paused run."""


def run(
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="Input of the run; `-` reads stdin. Not with --resume.")
    ] = None,
    agent: AgentSource = None,
    session: SessionName = None,
    tenant: TenantName = None,
    user: UserName = None,
    kwarg: Kwargs = None,
    shared: SharedNames = None,
    locale: LocaleName = None,
    tag: Tags = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Approve every tool call that needs approval, and every question of a guard."),
    ] = False,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File of the journal; `agentkit inspect` shows it.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Resume the run of this journal; --yes approves its waiting calls."),
    ] = None,
    model: ModelName = None,
    chat_template: ChatTemplateName = None,
    model_name: TemplateModel = None,
    embedder: EmbedderName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Run an agent once.

    The answer is printed to stdout, everything else to stderr. The exit code is 1 if the run failed, and 3 if it paused
    because a tool call needs approval.

    Example: agentkit run "What does Emma cost?" --agent shop.yaml --kwarg currency=CHF
    """
    from agentkit.run.journal.journal import Journal
    from agentkit_prompts.context.prompt_context import UserInput

    if (text is None) == (resume is None):
        raise typer.BadParameter("expected TEXT, or --resume FILE with the journal of a run")
    source: UserInput | Journal
    file = journal
    if resume is None:
        source = UserInput(_input_text(text), additional_kwargs=kwargs_of(kwarg))
    else:
        stored = {"journal": journal, "kwarg": kwarg, "locale": locale, "tag": tag, "tenant": tenant}
        _check_resume(stored, user=user, session=session)
        source, file = Journal.read(resume), resume
        session = session or source.session
        if source.scope:
            tenant, user = source.scope[0], user or source.scope[1]
    with ExitStack() as closing:
        loaded = closing.enter_context(
            opened_agent(
                agent,
                home=home,
                model=model,
                embedder=embedder,
                verbose=not as_json,
                chat_template=chat_template,
                model_name=model_name,
                shared=shared,
                tenant=tenant,
            )
        )
        options: dict[str, Any] = {"journal": journal}
        if tag:
            options["tags"] = [*map(utf8, tag)]
        if locale is not None:
            options["locale"] = utf8(locale)
        if session is not None:
            memory = closing.enter_context(conversation_memory(loaded, home, tenant, user))
            options["session"] = text_session(memory, utf8(session))
        elif resume is None and (tenant is not None or user is not None or loaded.agent.memory is None):
            # Without a memory the run has no default user: tools act for the user for whom `agentkit chat` acts.
            options["scope"] = scope_of(loaded.memory, tenant, user).with_default_user()
        if yes:
            options["approve"] = lambda call: True
        if not as_json:
            closing.enter_context(calls_shown())
        _run(loaded, source, options, as_json, file)


def _check_resume(stored: Mapping[str, object], *, user: str | None, session: str | None) -> None:
    """Refuse options that a resumed run reads from its journal; `stored`: their values by their names."""
    names = ", ".join([f"--{name}" for name, value in stored.items() if value])
    if names:
        raise typer.BadParameter(f"--resume continues the run of the journal: omit {names}")
    if user is not None and session is None:
        raise typer.BadParameter("--resume reads the memory of the run: omit --user")


def _input_text(text: str | None) -> str:
    if text == "-":
        return sys.stdin.read()
    return utf8(text or "")


class _Printer:
    """Prints the text and the tool calls of a run."""

    def __init__(self, *, streams: bool, as_json: bool) -> None:
        self._streams = streams
        self._as_json = as_json
        self.last_text = ""
        """The last printed text; empty before the first text."""

    def on_event(self, event: Event) -> None:
        """Print the text, the tool call or the approval of an event."""
        from agentkit.run.engine.events import ApprovalGiven, TextDelta, ToolFinished, ToolStarted

        if isinstance(event, TextDelta) and self._streams:
            put(event.text, end="")
            self.last_text = event.text or self.last_text
        elif isinstance(event, ApprovalGiven | ToolStarted | ToolFinished) and not self._as_json:
            if self.last_text and not self.last_text.endswith("\n"):
                put("")
                self.last_text = "\n"
            if isinstance(event, ApprovalGiven):
                note(approval_line(event.call))
            else:
                note(tool_line(event))


def _run(
    loaded: LoadedAgent, source: UserInput | Journal, options: dict[str, Any], as_json: bool, journal: Path | None
) -> None:
    from agentkit.errors import Paused
    from agentkit.run.journal.journal import Journal
    from agentkit.server.served_runs.event_form import output_form

    agent = loaded.agent
    # Only text is streamed, because a part of a JSON document is not valid JSON.
    printer = _Printer(streams=not as_json and agent.chain.output is str, as_json=as_json)
    try:
        if isinstance(source, Journal):
            result = asyncio.run(agent.resume(source, on_event=printer.on_event, **options))
        else:
            result = asyncio.run(agent.run(source, on_event=printer.on_event, **options))
    except Paused as paused:
        _report_waiting(paused, journal, as_json=as_json)
        raise typer.Exit(PAUSED) from None
    if as_json:
        put_json(result_form(result))
        return
    if printer.last_text:
        put("")
    else:
        output = output_form(result.output)
        if not isinstance(output, str):
            output = json.dumps(output, ensure_ascii=False, indent=2)
        put(output)
    note_cut(result)


def _report_waiting(paused: Paused, journal: Path | None, *, as_json: bool) -> None:
    """Print the waiting calls and the command that approves them."""
    from agentkit.server.served_runs.event_form import waiting_form

    if as_json:
        put_json({"status": "waiting", "waiting": [waiting_form(call) for call in paused.calls]})
    note("these calls need approval and did not run:")
    for call in paused.calls:
        note_call(call, agent=paused.agents.get(call.id, ""), is_whole=True)
    if journal is None:
        note("run again with --yes to approve them, or use `agentkit chat`")
    else:
        note(f"to approve them: agentkit run --resume {shlex.quote(str(journal))} --yes, with the same --agent")


def note_cut(result: RunResult[Any]) -> None:
    """Print a note if the answer was cut at a limit."""
    if result.finish_reason == "length":
        note("the answer was cut at max_tokens of the settings, or at the limit of the server")


def result_form(result: RunResult[Any]) -> dict[str, Any]:
    """Return the answer of a run as JSON data."""
    from agentkit.server.served_runs.event_form import answer_form, usage_form

    return {
        "status": "finished",
        "run_id": result.run_id,
        **answer_form(result),
        "steps": result.steps,
        "usage": usage_form(result.usage),
    }


def kwargs_of(options: list[str] | None) -> dict[str, Any]:
    """Return the additional kwargs of `--kwarg`; a value is JSON if it is valid JSON, otherwise text."""
    kwargs: dict[str, Any] = {}
    for option in options or ():
        name, mark, value = utf8(option).partition("=")
        name = name.strip()
        if not mark or not name:
            raise typer.BadParameter(f"--kwarg {option!r:.60}: expected NAME=VALUE")
        if name in kwargs:
            raise typer.BadParameter(f"--kwarg: duplicate name {name!r:.60}")
        try:
            kwargs[name] = json.loads(value)
        except ValueError:
            kwargs[name] = value
    return kwargs
