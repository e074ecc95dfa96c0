"""The context of an earlier model call: from a journal, or from a conversation that has none.

Nothing is sent, no tool runs, and no memory is asked. The prompts are those that the agent has now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.run.parts.repairs import is_repair
from agentkit.run.parts.session import Session, SessionProtocol
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.errors import PromptError, brief

__all__ = ["turn_bounds", "turn_context"]


def turn_bounds(conversation: Conversation) -> list[int]:
    """Return where each turn begins, and behind them the end: turn `n` is `conversation[bounds[n] : bounds[n + 1]]`.

    A turn is what a user wrote and what followed; what asked a model to repair its answer begins none.
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
) -> tuple[PromptContext, int]:
    """Return the context of a model call of a turn that has no journal, and how many calls the turn had.

    What memory had found then is not known, and is left out.

    Args:
        agent: The agent to compose with.
        session: The conversation.
        turn: Which turn, from 0.
        kwargs: Additional kwargs of the input, where the session keeps none.
        step: Which model call of the turn, from 1; the last one when not given.

    Raises:
        PromptError: There is no such turn or step.
    """
    conversation = session.conversation
    bounds = turn_bounds(conversation)
    count = len(bounds) - 1
    if not 0 <= turn < count:
        raise PromptError(f"turn: the session has {count} turns, from 0; there is no {brief(turn)}", name="turn")
    start, stop = bounds[turn : turn + 2]
    asked = conversation[start]
    answers = [at for at in range(start + 1, stop) if conversation[at].role == "assistant"] or [stop]
    number = len(answers) if step is None else step
    if not 1 <= number <= len(answers):
        raise PromptError(
            f"step: turn {turn} has {len(answers)} model calls, from 1; there is no {brief(step)}", name="step"
        )
    before = Session(session.id, conversation[:start])
    before.keep_kwargs(getattr(session, "additional_kwargs", None) or {})
    given = UserInput(asked.content if asked.role == "user" else "", dict(kwargs or {}))
    ctx = agent.context(given, before)
    ctx = ctx.evolve(intermediate=Conversation(conversation[start + 1 : answers[number - 1]]))
    return ctx, len(answers)
