"""Examples of stored conversations, whose runs have no journals."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.inspector.past_contexts import turn_bounds, turn_context
from agentkit.run.engine.recalled_context import with_recall
from agentkit.run.parts.recaller import recall, shown_options
from agentkit.run.parts.run_scope import run_scope, within_scope
from agentkit.training.training_example import LeftOut, Origin, TrainingExample, TrainingSource
from agentkit_memory import Memory
from agentkit_memory.conversations.stored_session import StoredSession
from agentkit_memory.errors import StoreError
from agentkit_memory.store.records import StoredMessage
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError


def conversation_answers(agent: Agent[Any, Any], memory: Memory, name: str) -> Iterator[TrainingSource]:
    """Yield the answers of a conversation without tool calls, with the present prompts of the agent.

    Recalled items are not stored with a conversation, so that the memory is queried again: for current documents and
    facts, and for messages of other conversations that are older than the question.

    Args:
        agent: The agent with its current prompts, tools and memory.
        memory: The memory with the conversation.
        name: Name of the conversation.
    """
    session = memory.session(name)
    conversation = session.conversation
    stored = session.page(after=0, limit=max(1, len(conversation)))

    def is_erased() -> bool:
        return not memory.sessions(name=name)

    for turn, (start, stop) in enumerate(pairwise(turn_bounds(conversation))):
        if conversation[start].role != "user":
            continue
        answers = [message for message in conversation[start + 1 : stop] if message.role == "assistant"]
        for step, message in enumerate(answers, 1):
            if message.tool_calls or not message.text:
                continue
            origin = Origin(
                agent=agent.name,
                session=name,
                version=agent.definition.version.id,
                parts=agent.definition.version.hashes,
                is_current=True,
                at=stored[start].said_at,
            )
            try:
                ctx = turn_context(agent, session, turn, step=step).ctx
                composition = agent.chain.compose(_with_recall(agent, ctx, session, stored[start]))
            except (PromptError, StoreError) as error:
                yield LeftOut(f"{origin.place}, turn {turn}", f"its prompt cannot be composed: {error}")
                continue
            yield TrainingExample(composition, message, origin, is_erased)


def _with_recall(
    agent: Agent[Any, Any], ctx: PromptContext, session: StoredSession, question: StoredMessage
) -> PromptContext:
    memory = within_scope(agent.memory, run_scope(agent.memory, session, {}))
    if memory is None or not ctx.user_input.text:
        return ctx
    options = shown_options(agent.definition.recall, agent.chain.layers)
    recalled = recall(memory, ctx.user_input.text, session, options=options)
    question_time = datetime.fromtimestamp(question.said_at, UTC)
    older = [message for message in recalled.recalled if message.when is None or message.when < question_time]
    return with_recall(ctx, recalled._replace(recalled=tuple(older)))
