"""Whether a run may go on from a journal: with this agent, this conversation, these decisions and this file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agentkit.errors import ApprovalError, JournalError
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_file import Keep
from agentkit.run.parts.decisions import decision
from agentkit.run.parts.session import SessionProtocol

__all__ = ["check_journal", "kept_in"]


def kept_in(journal: Journal, keep: Keep | None) -> Keep | None:
    """Return where the journal of a run that goes on is kept: in its file, where it has one.

    Raises:
        JournalError: `keep` is something else.
    """
    if journal.file is None:
        return keep
    if keep is not None and not (isinstance(keep, Path | str) and Path(keep).absolute() == journal.file):
        raise JournalError(
            f"journal={keep!r:.80}: a run that goes on from a file is kept in that file, {journal.file}; to keep it "
            "elsewhere, resume Journal.loads(journal.dumps())",
            name="journal",
            path=str(journal.file),
        )
    return journal.file


def check_journal(journal: Journal, agent: str, session: SessionProtocol | None, approve: object) -> None:
    """Refuse to go on with a run of another agent or conversation, or to decide again what was decided.

    Raises:
        JournalError: It is another one, did not come to this process whole, or the conversation was rewound since.
        ApprovalError: `approve` has another decision about a call than the run had.
    """
    journal.check()
    if journal.agent != agent:
        raise JournalError(
            f"journal of run {journal.run_id!r}: its agent is {journal.agent!r}, not {agent!r}",
            name="agent",
            value=journal.agent,
        )
    if journal.session != (None if session is None else session.id):
        wanted = "without a session" if journal.session is None else f"on session {journal.session!r}"
        raise JournalError(
            f"journal of run {journal.run_id!r}: it ran {wanted}: resume it with session= as it was",
            name="session",
            value=journal.session,
        )
    if isinstance(approve, Mapping):
        for call, made in journal.decisions.items():
            if call in approve and decision(approve[call], call) != made:
                raise ApprovalError(
                    f"approve: about {call!r} it was decided already: {made!r:.80}", name="approve", value=call
                )
    _check_kept(journal, session)


def _check_kept(journal: Journal, session: SessionProtocol | None) -> None:
    """Refuse to go on with a run whose messages are no longer in the conversation, or that has more of them there."""
    entries = journal.entries
    if entries and entries[0].effect != "Begin":
        raise JournalError(
            f"journal of run {journal.run_id!r}: it begins with {entries[0].effect}: lines are mixed up",
            name=entries[0].effect,
            line=2,
        )
    if session is None or not entries or journal.continues_session or entries[0].answer[1]:
        return
    step, kept, waiting = 0, None, 0
    for one in journal.steps():
        step = one.step
        if one.kind == "model":
            waiting = len(one.answer.message.tool_calls)
        elif one.kind == "tool" and one.has_result:
            waiting -= 1
        elif one.kind == "append":
            kept = step
    if kept is not None and session.position(f"{journal.run_id}:{kept}") is None:
        raise JournalError(
            f"run {journal.run_id!r}: its last messages are not in the conversation, which was rewound since, or is "
            "another one: begin a new run",
            name="conversation",
        )
    # The messages of a step may have been kept when the run was killed before that was written down.
    following = step if waiting else step + 1
    if session.position(f"{journal.run_id}:{following}") is not None:
        raise JournalError(
            f"run {journal.run_id!r} went on since this journal: its conversation has the messages of step "
            f"{following}. Resume the journal of the run as it is now; without it, "
            f"run(..., run_id={journal.run_id!r}, session=...) goes on from the conversation",
            name="step",
            value=following,
        )
