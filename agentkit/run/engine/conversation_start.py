"""The messages before a run, and the messages that earlier attempts of the run stored."""

from __future__ import annotations

from typing import Any

from agentkit.errors import JournalError, NothingToContinue
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.steps import RunStart
from agentkit.run.parts.repairs import is_repair
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message


def run_start(setup: RunSetup[Any], at: tuple[int, int] | None) -> RunStart:
    """Return the messages before a run, and the messages that earlier attempts of the run stored.

    Args:
        setup: The run.
        at: Number of messages before the run, and of messages of the run, from a journal; None without a journal.

    Raises:
        NothingToContinue: The run has no input, and the conversation has no user message.
        JournalError: The conversation is shorter than at the start of the run.
    """
    session, run_id = setup.session, setup.journal.run_id
    if at is not None:
        return _replayed_start(setup, *at)
    conversation = setup.ctx.conversation
    if session is not None:
        conversation = session.conversation
    if setup.journal.continues_session:
        return _split(conversation, _last_question(conversation), len(conversation))
    first = None
    if session is not None and not setup.is_new:
        first = session.position(f"{run_id}:0")
    if session is None or first is None:
        return RunStart(conversation)
    return RunStart(conversation[:first], _stored_messages(run_id, session, first))


def _replayed_start(setup: RunSetup[Any], before: int, done: int) -> RunStart:
    """Return the start of a run from its journal: `before` messages before the run, and `done` stored messages."""
    session, run_id = setup.session, setup.journal.run_id
    conversation = setup.ctx.conversation
    if session is not None:
        conversation = session.conversation
    # The session was rewound, or is another session: its prompts would differ from the recorded prompts.
    if len(conversation) < before + done:
        raise JournalError(
            f"run {run_id!r} started after {before + done} messages, but the conversation has {len(conversation)}: "
            "pass the session of the run",
            name="conversation",
            value=run_id,
        )
    if done and session is not None and session.position(f"{run_id}:0") == before:
        return RunStart(conversation[:before], _stored_messages(run_id, session, before)[:done])
    return _split(conversation, before, before + done)


def _split(conversation: Conversation, first: int, last: int) -> RunStart:
    return RunStart(conversation[:first], tuple(conversation[first:last]))


def _last_question(conversation: Conversation) -> int:
    """Return the index of the last user message that is not a repair message."""
    for at in range(len(conversation) - 1, -1, -1):
        if conversation[at].role == "user" and not is_repair(conversation[at]):
            return at
    raise NothingToContinue(
        "the conversation has no user message to answer: pass an input to the run",
        name="user_input",
        value="no question",
    )


def _stored_messages(run_id: str, session: SessionProtocol, first: int) -> tuple[Message, ...]:
    """Return the stored messages of a run, without messages of other writers between its steps."""
    conversation = session.conversation
    received = _received(run_id, session)
    stored: list[Message] = []
    step = 0
    position: int | None = first
    while position is not None:
        step += 1
        following = session.position(f"{run_id}:{step}")
        for at in range(position, len(conversation)):
            message = conversation[at]
            if at == following:
                break
            # Step 0 has only messages of users; a user message of another step is a repair, or another writer's.
            is_own = at == first or at in received
            if not is_own and (step == 1 or (message.role == "user" and not is_repair(message))):
                break
            stored.append(message)
        position = following
    return tuple(stored)


def _received(run_id: str, session: SessionProtocol) -> set[int]:
    """Return the indexes of the messages that were sent to a run while it ran."""
    indexes: set[int] = set()
    while (at := session.position(f"{run_id}:received:{len(indexes) + 1}")) is not None:
        indexes.add(at)
    return indexes
