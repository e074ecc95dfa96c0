"""Row of an evaluation from a durable run, for `agentkit runs show RUN --as-case`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from agentkit.agent_files.import_path import imported
from agentkit.cli.agent_option import loaded_agent
from agentkit.cli.options import utf8
from agentkit.cli.screen import note
from agentkit.durable.added_agents import AddedAgent
from agentkit.durable.runs_facade import Runs
from agentkit.durable.stored.run_request import RunRequest
from agentkit.evals.run_case import case_line, case_of, first_context
from agentkit.ground.sync_driver import run_blocking
from agentkit.observing.redaction import Redact
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.context.prompt_context import PromptContext


def imported_redact(source: str | None) -> Redact | None:
    """Return the function of `--redact MODULE:FUNCTION`; None without the option.

    Raises:
        typer.BadParameter: The name is no name of a function.
        AgentDefinitionError: The function cannot be imported.
    """
    if source is None:
        return None
    text = utf8(source)
    if ":" not in text:
        raise typer.BadParameter(f"--redact {text!r:.60}: expected MODULE:FUNCTION, such as shop/privacy.py:mask")
    redact: Redact = imported(text, Path())
    if not callable(redact):
        raise typer.BadParameter(f"--redact {text!r:.60}: expected a function of a text, got {type(redact).__name__}")
    return redact


def stored_case_line(runs: Runs, run_id: str, *, agent: str | None, tags: Sequence[str], redact: Redact | None) -> str:
    """Return a run as a row of a file of rows.

    Args:
        runs: The runs of the database.
        run_id: Id of the run.
        agent: The value of `--agent`, whose memory has the session of the run.
        tags: Tags of the row.
        redact: Function that removes secrets and personal data.
    """
    handle = runs.handle(run_id)
    record, journal = run_blocking(handle.info()), run_blocking(handle.journal())
    context = _context(runs, journal, agent)
    if redact is None:
        note("nothing is redacted: name a function of a text with --redact MODULE:FUNCTION")
    if record.state != "finished":
        note(f"the run is {record.state}, without an answer: add the expected answer")
    expected: Any = None
    if record.state == "finished" and record.finish_reason != "limit":
        expected = record.output
    return case_line(case_of(context, id=run_id, expected=expected, tags=tags, redact=redact))


def _context(runs: Runs, journal: Journal, agent: str | None) -> PromptContext:
    """Return the input of a run with its conversation, from the session of the run in the memory of its agent."""
    if journal.session is None:
        return first_context(journal)
    if agent is None:
        raise typer.BadParameter(
            f"run {journal.run_id!r} has the session {journal.session!r}: name its agent with --agent, whose memory "
            "has the earlier turns"
        )
    loaded = loaded_agent(agent)
    try:
        request = RunRequest.loads(runs.store.queue.request(journal.run_id))
        session: SessionProtocol | None = None
        if request.session is not None:
            added = AddedAgent(loaded.agent, request.version, deps=None, sessions=None, approval_timeout=None)
            session = added.session(request.session)
        return first_context(journal, session)
    finally:
        loaded.close()
