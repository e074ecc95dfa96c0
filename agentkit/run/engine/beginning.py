"""Where a run begins: behind the conversation, or where an earlier attempt at it was cut short."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from agentkit.errors import AgentDefinitionError, JournalError, NothingToContinue
from agentkit.run.engine.effects import Begin, Beginning
from agentkit.run.engine.loop import is_repair
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.chain import Chain
from agentkit.run.parts.recaller import RecallSource
from agentkit.run.parts.run_context import Input, run_context
from agentkit.run.parts.session import Session
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.errors import brief

__all__ = ["beginning", "new_journal"]


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
            f"run_id: expected text, such as 'order-17', got {brief(run_id, 40)}: idempotency keys are made of it",
            name="run_id",
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
                f"run {effect.run_id!r} began after {before + done} messages, and the conversation has "
                f"{len(conversation)}: it is another one",
                name="conversation",
                value=effect.run_id,
            )
        if done and session is not None and session.position(f"{effect.run_id}:0") == before:
            return Beginning(conversation[:before], _own(effect.run_id, session, before)[:done])
        return _cut(conversation, before, before + done)
    if effect.goes_on:
        return _unanswered(conversation)
    if is_new or session is None or (first := session.position(f"{effect.run_id}:0")) is None:
        return Beginning(conversation)
    return Beginning(conversation[:first], _own(effect.run_id, session, first))


def _cut(conversation: Conversation, first: int, last: int) -> Beginning:
    return Beginning(conversation[:first], tuple(conversation[first:last]))


def _unanswered(conversation: Conversation) -> Beginning:
    """Return the conversation with its last run cut off, which has no answer yet."""
    asked = (at for at in range(len(conversation) - 1, -1, -1) if conversation[at].role == "user")
    first = next((at for at in asked if not is_repair(conversation[at])), None)
    if first is None:
        raise NothingToContinue(
            "the conversation has no message of a user to answer: give the run an input",
            name="user_input",
            value="no question",
        )
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
