"""Where a run begins: behind the conversation, or where an earlier attempt at it was cut short."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentkit.chain import Chain
from agentkit.errors import AgentDefinitionError, ApprovalError, JournalError, NothingToContinue
from agentkit.recaller import RecallSource
from agentkit.run.decisions import decision
from agentkit.run.effects import Begin, Beginning
from agentkit.run.journal import Journal
from agentkit.run.journal_file import Keep
from agentkit.run.loop import is_repair
from agentkit.run_context import Input, run_context
from agentkit.session import Session
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.errors import brief

__all__ = ["beginning", "check_journal", "kept_in", "new_journal"]


def new_journal(
    agent: str,
    chain: Chain[Any],
    tools: tuple[ToolSpec, ...],
    memory: RecallSource | None,
    user_input: Input | None,
    options: Mapping[str, Any],
) -> Journal:
    """Return the journal of a run that has not begun; `options` are those of the run.

    Raises:
        AgentDefinitionError: The id of the run is no text.
    """
    session, run_id = options.get("session"), options.get("run_id")
    if run_id is None:
        run_id = os.urandom(16).hex()
    elif not isinstance(run_id, str) or not run_id:
        raise AgentDefinitionError(
            f"run_id: expected text, such as 'order-17', got {brief(run_id, 40)}: idempotency keys are made of it"
        )
    ctx = run_context(chain, tools, "" if user_input is None else user_input, session, run_id)
    scope = None if memory is None else getattr(getattr(memory, "scope", None), "names", None)
    return Journal(agent, run_id, ctx, None if session is None else session.id, user_input is None, scope)


def beginning(effect: Begin, session: Session | None, conversation: Conversation, *, is_new: bool) -> Beginning:
    """Return where a run begins.

    Args:
        effect: What the loop asked.
        session: The conversation; None where `conversation` is all there is.
        conversation: What the run goes on with where there is no session.
        is_new: Whether no run had this id before.

    Raises:
        NothingToContinue: There is no new input, and no message of a user.
        JournalError: The conversation is shorter than it was when the run began.
    """
    if session is not None:
        conversation = session.conversation
    if effect.at is not None:
        before, done = effect.at
        if len(conversation) < before + done:
            raise JournalError(
                f"run {effect.run_id!r} began behind {before + done} messages, and the conversation has "
                f"{len(conversation)}: it is another one"
            )
        if done and session is not None and session.position(f"{effect.run_id}:0") == before:
            return Beginning(conversation[:before], _own(effect.run_id, session, before)[:done])
        return _cut(conversation, before, before + done)
    if effect.goes_on:
        return _unanswered(conversation)
    if is_new or session is None or (first := session.position(f"{effect.run_id}:0")) is None:
        return Beginning(conversation)
    return Beginning(conversation[:first], _own(effect.run_id, session, first))


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
            "elsewhere, resume Journal.loads(journal.dumps())"
        )
    return journal.file


def check_journal(journal: Journal, agent: str, session: Session | None, approve: object) -> None:
    """Refuse to go on with a run of another agent or conversation, or to decide again what was decided.

    Raises:
        JournalError: It is another one, did not come to this process whole, or the conversation was rewound since.
        ApprovalError: `approve` has another decision about a call than the run had.
    """
    journal.check()
    if journal.agent != agent:
        raise JournalError(f"journal of run {journal.run_id!r}: its agent is {journal.agent!r}, not {agent!r}")
    if journal.session != (None if session is None else session.id):
        wanted = "without a session" if journal.session is None else f"on session {journal.session!r}"
        raise JournalError(f"journal of run {journal.run_id!r}: it ran {wanted}: resume it with session= as it was")
    if isinstance(approve, Mapping):
        for call, made in journal.decisions.items():
            if call in approve and decision(approve[call], call) != made:
                raise ApprovalError(f"approve: about {call!r} it was decided already: {made!r:.80}")
    _check_kept(journal, session)


def _check_kept(journal: Journal, session: Session | None) -> None:
    """Refuse to go on with a run whose messages are no longer in the conversation, or that has more of them there."""
    entries = journal.entries
    if entries and entries[0].effect != "Begin":
        raise JournalError(f"journal of run {journal.run_id!r}: it begins with {entries[0].effect}: lines are mixed up")
    if session is None or not entries or journal.goes_on or entries[0].answer[1]:
        return
    step, kept, waiting = 0, None, 0
    for entry in entries:
        if entry.effect == "CallModel":
            step, waiting = step + 1, len(entry.answer.message.tool_calls)
        elif entry.effect == "CallTools":
            waiting -= 1
        elif entry.effect == "Append":
            kept = step
    if kept is not None and session.position(f"{journal.run_id}:{kept}") is None:
        raise JournalError(
            f"run {journal.run_id!r}: its last messages are not in the conversation, which was rewound since, or is "
            "another one: begin a new run"
        )
    # The messages of a step may have been kept when the run was killed before that was written down.
    following = step if waiting else step + 1
    if session.position(f"{journal.run_id}:{following}") is not None:
        raise JournalError(
            f"run {journal.run_id!r} went on since this journal: its conversation has the messages of step "
            f"{following}. Resume the journal of the run as it is now; without it, "
            f"run(..., run_id={journal.run_id!r}, session=...) goes on from the conversation"
        )


def _cut(conversation: Conversation, first: int, last: int) -> Beginning:
    return Beginning(conversation[:first], tuple(conversation[first:last]))


def _unanswered(conversation: Conversation) -> Beginning:
    """Return the conversation with its last run cut off, which has no answer yet."""
    asked = (at for at in range(len(conversation) - 1, -1, -1) if conversation[at].role == "user")
    first = next((at for at in asked if not is_repair(conversation[at])), None)
    if first is None:
        raise NothingToContinue("the conversation has no message of a user to answer: give the run an input")
    return _cut(conversation, first, len(conversation))


def _own(run_id: str, session: Session, first: int) -> tuple[Message, ...]:
    """Return the messages of a run, which were kept step by step; those of another writer may stand between them."""
    conversation = session.conversation
    own, step = [conversation[first]], 1
    found = session.position(f"{run_id}:1")
    while found is not None:
        step += 1
        following = session.position(f"{run_id}:{step}")
        for at in range(found, len(conversation)):
            message = conversation[at]
            if at == following or (message.role == "user" and not is_repair(message)):
                break  # the next step, or another writer
            own.append(message)
        found = following
    return tuple(own)
