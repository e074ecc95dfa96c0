"""`agentkit inspect`: serves a page of runs and sessions as prompt trees, to this machine only."""

from __future__ import annotations

import contextlib
import json
import sys
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from agentkit.cli.agent_option import AgentSources, opened_agent
from agentkit.cli.options import HOME, TENANT, AsJson, Home, has_memory, memory_with, open_memory, text_session, utf8
from agentkit.cli.screen import complain, logged, note, put
from agentkit_prompts.extras import install

if TYPE_CHECKING:
    from agentkit.agent.agent import Agent
    from agentkit.run.journal.journal import Journal
    from agentkit.run.parts.session import SessionProtocol
    from agentkit_memory import Memory


def inspect(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|SESSION|EVALUATION]...",
            help="Journal files, files of `agentkit eval --out`, folders of both, and names of conversations.",
        ),
    ] = None,
    agent: AgentSources = None,
    cases: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to which Play adds test cases, a line of JSON each."),
    ] = None,
    redact: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that returns each text of a test case without secrets and personal data.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 selects a free port.")] = 0,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Show runs and conversations on a page: every prompt in layers, with the source of each part.

    The page is served to this machine only, and its address contains a token. Ctrl-C stops it.

    Example: agentkit inspect failed.journal --agent shop:support
    """
    from agentkit.cli.default_agent import choose_model, default_agent
    from agentkit.cli.stored_run_case import imported_redact

    try:
        from agentkit.inspector.local_page import serve_locally
        from agentkit.inspector.local_source import LocalSource
    except ModuleNotFoundError as error:
        complain(f"{error.name} is missing: {install('server')}")
        raise typer.Exit(1) from error
    with contextlib.ExitStack() as closing:
        closing.enter_context(logged())
        function = imported_redact(redact)
        memory = None
        if has_memory(home):
            memory = closing.enter_context(open_memory(home))
        named = [closing.enter_context(opened_agent(path, home=home)).agent for path in agent or ()]
        agents = named or [default_agent(choose_model(), memory)]
        stores = _stores(memory, named)
        files, evaluations = _expanded(names or ())
        runs, sessions = _runs_and_sessions(files, stores)
        _note_missing_agents(runs, agents)
        new_session: Callable[[str], SessionProtocol] = _unstored_session
        if memory is not None:
            new_session = memory.session
        source = LocalSource(
            agents,
            sessions=sessions,
            runs=runs,
            evaluations=evaluations,
            new_session=new_session,
            cases=cases,
            redact=function,
        )

        def ready(address: str) -> None:
            if as_json:
                put(json.dumps({"url": address}))
            else:
                put(address)
                note("Ctrl-C stops it")
            if opens and sys.stdout.isatty():
                webbrowser.open(address)

        serve_locally(source, port=port, where=_first_page(runs, sessions, evaluations), on_ready=ready)


def _note_missing_agents(runs: list[Journal], agents: list[Agent]) -> None:
    """Print the runs whose prompts cannot be shown, because their agent is not loaded."""
    names = {agent.name for agent in agents}
    for journal in runs:
        if journal.agent not in names:
            note(f"run {journal.run_id}: name its agent {journal.agent!r} with --agent to show the sent prompts")


def _unstored_session(name: str) -> SessionProtocol:
    from agentkit.run.parts.session import Session

    return Session(name)


def _stores(memory: Memory | None, agents: list[Agent]) -> list[Memory]:
    """Return the stores to search for conversations: the memory, and its scopes of agents without memory."""
    from agentkit_memory import Scope

    if memory is None:
        return []
    return [memory, *[memory.within(Scope(TENANT, agent=agent.name)) for agent in agents if agent.memory is None]]


def _expanded(names: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Return the names with the journals of folders, and the files of evaluations."""
    from agentkit.model_evaluation.answer_file import is_answer_file

    files: list[str] = []
    evaluations: list[Path] = []
    for name in names:
        paths = [Path(name)]
        if paths[0].is_dir():
            # A folder without such files can have the name of a conversation.
            paths = sorted(paths[0].glob("*.jsonl")) or paths
        for path in paths:
            if path.is_file() and is_answer_file(path):
                evaluations.append(path)
            else:
                files.append(str(path))
    return files, evaluations


def _first_page(runs: list[Journal], sessions: list[SessionProtocol], evaluations: list[Path]) -> str:
    if evaluations:
        return f"/evaluation/{quote(str(evaluations[0]), safe='')}"
    if runs:
        return f"/run/{quote(runs[0].run_id, safe='')}"
    if sessions:
        return f"/session/{quote(sessions[0].id, safe='')}"
    return ""


def _runs_and_sessions(names: Any, stores: list[Memory]) -> tuple[list[Journal], list[SessionProtocol]]:
    """Return the journals and conversations of names; exit with an error that lists all unknown names."""
    from agentkit.run.journal.journal import Journal

    runs: list[Journal] = []
    sessions: list[SessionProtocol] = []
    missing: list[str] = []
    for argument in names:
        name = utf8(argument)
        if Path(argument).is_file():
            runs.append(Journal.read(argument))
        elif matches := _session(stores, name):
            sessions += matches
        else:
            missing.append(name)
    # The page links a run to its session, so that the sessions of the runs are needed too.
    for journal in runs:
        if journal.session is not None and all(session.id != journal.session for session in sessions):
            sessions += _session(stores, journal.session)
    for name in missing:
        complain(
            f"{name!r}: no file and no conversation with messages has this name; `agentkit run --journal FILE` writes "
            "a journal, and `agentkit sessions list` lists the conversations; add --agent FILE to both commands for "
            "conversations of `agentkit chat --agent FILE`"
        )
    if missing:
        raise typer.Exit(1)
    return runs, sessions


def _session(stores: list[Memory], name: str) -> list[SessionProtocol]:
    """Return a list with the first conversation with this name that has messages, or an empty list."""
    for store in stores:
        if memory_with(store, name).sessions(name=name):
            session = text_session(store, name)
            if len(session.conversation):
                return [session]
    return []
