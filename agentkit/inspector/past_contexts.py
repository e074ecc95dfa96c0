"""Turns of a conversation, and the context of a model call in a turn whose run has no journal.

Nothing is sent, no tool runs, and no memory is searched. The present prompts of the agent render the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentkit.agent.agent import Agent
from agentkit.run.parts.repairs import is_repair
from agentkit.run.parts.session import Session, SessionProtocol
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.errors import PromptError, brief


class TurnCall(NamedTuple):
    """A model call in a turn of a conversation."""

    ctx: PromptContext
    steps: int
    """Number of model calls of the turn."""
    reply: Message | None
    """None if the turn has no reply."""


def turn_bounds(conversation: Conversation) -> list[int]:
    """Return the index of the first message of each turn, and the number of messages.

    Turn `n` is `conversation[bounds[n] : bounds[n + 1]]`. A turn starts with a message of the user; a request to repair
    an answer starts no turn.
    """
    starts = [at for at, begins in enumerate(conversation.derive(_begins_turn)) if begins]
    if len(conversation) and (not starts or starts[0] > 0):
        starts.insert(0, 0)
    return [*starts, len(conversation)]


def _begins_turn(message: Message) -> bool:
    return message.role == "user" and not is_repair(message)


def turn_context(
    agent: Agent[Any, Any],
    session: SessionProtocol,
    turn: int,
    kwargs: Mapping[str, Any] | None = None,
    step: int | None = None,
) -> TurnCall:
    """Return a model call in a turn without a journal.

    The context has no recalled items, because the items of that time are unknown.

    Args:
        agent: The agent that composes.
        session: The conversation.
        turn: Number of the turn, from 0.
        kwargs: Additional kwargs of the input; they take precedence over the kwargs of the session.
        step: Number of the model call in the turn, from 1; None for the last call.

    Raises:
        PromptError: The turn or the step is out of range.
    """
    conversation = session.conversation
    bounds = turn_bounds(conversation)
    count = len(bounds) - 1
    if not 0 <= turn < count:
        raise PromptError(f"turn: unknown turn {brief(turn)}; the session has {count} turns, from 0", name="turn")
    start, stop = bounds[turn : turn + 2]
    first = conversation[start]
    text: Any = ""
    if first.role == "user":
        text = first.content
    answers = [at for at in range(start + 1, stop) if conversation[at].role == "assistant"] or [stop]
    number = step
    if number is None:
        number = len(answers)
    if not 1 <= number <= len(answers):
        raise PromptError(
            f"step: unknown step {brief(step)}; turn {turn} has {len(answers)} model calls, from 1", name="step"
        )
    # A session with the messages before the turn only: the composition must not show the turn itself.
    before = Session(session.id, conversation[:start])
    before.keep_kwargs(getattr(session, "additional_kwargs", None) or {})
    ctx = agent.context(UserInput(text, dict(kwargs or {})), before)
    ctx = ctx.evolve(intermediate=Conversation(conversation[start + 1 : answers[number - 1]]))
    reply = None
    if answers[number - 1] < stop:
        reply = conversation[answers[number - 1]]
    return TurnCall(ctx, len(answers), reply)
