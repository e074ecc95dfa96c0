"""The context of an earlier model call: from a journal, or from a conversation that has none.

Nothing is sent, no tool runs, and no memory is asked. The prompts are those that the agent has now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.errors import JournalError
from agentkit.run.engine.loop import remembering
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.repairs import is_repair
from agentkit.run.parts.run_context import with_key
from agentkit.run.parts.session import Session, SessionProtocol
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.errors import PromptError, brief

__all__ = ["run_contexts", "turn_bounds", "turn_context"]


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


def run_contexts(
    agent: Agent[Any, Any], journal: Journal, session: SessionProtocol | None = None
) -> list[PromptContext]:
    """Return the context of each model call of a run, first to last; that of a call without an answer is among them.

    `agent.chain.compose` makes of it what was sent.

    Args:
        agent: The agent of the run, as it is now.
        journal: The journal of the run.
        session: The session of the run; None where it had none.

    Raises:
        JournalError: The session is missing, or has fewer messages than when the run began.
    """
    if journal.session is not None and session is None:
        raise JournalError(
            f"run {journal.run_id!r}: the session {journal.session!r}, which it went on with, does not exist any more: "
            "what was sent cannot be composed again",
            name="session",
            value=journal.session,
        )
    ctx = with_key(journal.context, agent.chain, session, journal.run_id)
    conversation = ctx.conversation if session is None else session.conversation
    found: list[PromptContext] = []
    is_asked, gone = False, set[str]()
    for name, answer, *_ in journal.entries:
        if name == "Begin":
            ctx, is_asked = _begun(journal, ctx, conversation, *answer)
        elif name == "Compact":
            ctx = ctx.evolve(conversation=ctx.conversation[answer.messages :], summary=answer.summary)
        elif name == "Equip":
            ctx = ctx.evolve(tools=tuple([spec for spec in answer if spec.name not in gone]))
        elif name == "SelectExamples":
            ctx = ctx.evolve(selections=answer)
        elif name == "Recall":
            ctx = remembering(ctx, answer)
        elif name == "CallModel":
            found.append(ctx)
        elif name == "CallTools" and answer[0].status == "unavailable":
            gone.add(answer[0].name)
        elif name == "Append" and not is_asked:
            is_asked = True
        elif name == "Append":
            ctx = ctx.evolve(intermediate=Conversation((*ctx.intermediate, *answer)))
            if gone:
                ctx = ctx.evolve(tools=tuple([spec for spec in ctx.tools if spec.name not in gone]))
    if is_asked and not _has_ended(journal):
        found.append(ctx)
    return found or [ctx]


def _begun(
    journal: Journal, ctx: PromptContext, conversation: Conversation, before: int, done: int
) -> tuple[PromptContext, bool]:
    """Return the context behind the first effect, and whether the message of the user is stored already."""
    if len(conversation) < before + done:
        raise JournalError(
            f"run {journal.run_id!r}: it began after {before + done} messages, and the session has "
            f"{len(conversation)}: it was rewound since, what was sent cannot be composed again",
            name="conversation",
        )
    ctx = ctx.evolve(conversation=conversation[:before])
    if not done:
        return ctx, False
    stored = conversation[before : before + done]
    asked = UserInput(stored[0].content, ctx.user_input.additional_kwargs)
    return ctx.evolve(user_input=asked, intermediate=Conversation(stored[1:])), True


def _has_ended(journal: Journal) -> bool:
    """Whether the last model call has its answer: what follows is the answer itself, or waits for tools."""
    last = next((name for name, *_ in reversed(journal.entries) if name in ("CallModel", "Append")), None)
    if last == "CallModel":
        return True
    messages = journal.messages
    return bool(messages) and messages[-1].role == "assistant" and not messages[-1].tool_calls


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
