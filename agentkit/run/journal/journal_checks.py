"""Checks of a run that is resumed: its agent, its conversation, its decisions and the file of its journal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agentkit.errors import ApprovalError, JournalError
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_file import JournalTarget
from agentkit.run.parts.decisions import decision
from agentkit.run.parts.session import SessionProtocol


def resumed_target(journal: Journal, target: JournalTarget | None) -> JournalTarget | None:
    """Return the destination of the journal of a resumed run: the file of the journal, if it has a file.

    Raises:
        JournalError: `target` is another destination.
    """
    if journal.file is None:
        return target
    if target is not None and not (isinstance(target, Path | str) and Path(target).absolute() == journal.file):
        raise JournalError(
            f"journal={target!r:.80}: a run that is resumed from a file is stored in the same file, {journal.file}; to "
            "store it elsewhere, resume Journal.loads(journal.dumps())",
            name="journal",
            path=str(journal.file),
        )
    return journal.file


def check_journal(journal: Journal, agent: str, session: SessionProtocol | None, approve: object) -> None:
    """Refuse to resume a run with another agent, conversation or decision.

    Raises:
        JournalError: The journal has another agent or conversation, the conversation was rewound since, or another
            process could not send the entries of the journal.
        ApprovalError: `approve` has another decision about a call than the journal.
    """
    journal.check()
    if journal.agent != agent:
        raise JournalError(
            f"journal of run {journal.run_id!r}: its agent is {journal.agent!r}, not {agent!r}",
            name="agent",
            value=journal.agent,
        )
    session_id = None
    if session is not None:
        session_id = session.id
    if journal.session != session_id:
        advice = f"on session {journal.session!r}: resume it with the same session="
        if journal.session is None:
            advice = "without a session: resume it without session="
        raise JournalError(
            f"journal of run {journal.run_id!r}: the run was {advice}",
            name="session",
            value=journal.session,
        )
    if isinstance(approve, Mapping):
        for call, earlier in journal.decisions.items():
            if call in approve and decision(approve[call], call) != earlier:
                raise ApprovalError(
                    f"approve: the call {call!r} has another decision already: {earlier!r:.80}",
                    name="approve",
                    value=call,
                )
    _check_conversation(journal, session)


def _check_conversation(journal: Journal, session: SessionProtocol | None) -> None:
    """Refuse to resume a run if the conversation lacks messages of the journal, or has later messages of the run."""
    entries = journal.entries
    if entries and entries[0].effect != "Begin":
        raise JournalError(
            f"journal of run {journal.run_id!r}: the first step is {entries[0].effect}, not Begin: the lines are in "
            "the wrong order",
            name=entries[0].effect,
            line=2,
        )
    if session is None or not entries or journal.continues_session or entries[0].answer[1]:
        return
    last, following = _last_steps(journal)
    if last is not None and session.position(f"{journal.run_id}:{last}") is None:
        raise JournalError(
            f"run {journal.run_id!r}: the conversation does not contain the last messages of the run: it was rewound "
            "since, or is another conversation: start a new run",
            name="conversation",
        )
    if session.position(f"{journal.run_id}:{following}") is not None:
        raise JournalError(
            f"run {journal.run_id!r} continued since this journal: its conversation has the messages of step "
            f"{following}. Resume the current journal of the run; without the journal, "
            f"run(..., run_id={journal.run_id!r}, session=...) continues from the conversation",
            name="step",
            value=following,
        )


def _last_steps(journal: Journal) -> tuple[int | None, int]:
    """Return the last step whose messages were stored, and the first step that must not be in the conversation yet."""
    number, last, open_calls = 0, None, 0
    for step in journal.steps():
        number = step.step
        if step.kind == "model":
            open_calls = len(step.answer.message.tool_calls)
        elif step.kind == "tool" and step.has_result:
            open_calls -= 1
        elif step.kind == "append":
            last = number
    # A killed run may have stored the messages of the next step before its journal line: that step is allowed.
    if not open_calls:
        number += 1
    return last, number
