"""Fine-tuning rows of a stored conversation."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.inspector.past_contexts import turn_bounds, turn_context
from agentkit.run.engine.loop import with_recall
from agentkit.run.parts.recaller import recall, shown_options
from agentkit.run.parts.run_scope import run_scope, within_scope
from agentkit_memory.conversations.stored_session import StoredSession
from agentkit_memory.store.records import StoredMessage
from agentkit_prompts.context.prompt_context import PromptContext

__all__ = ["training_rows"]


def training_rows(agent: Agent[Any, Any], session: StoredSession, template: str | None) -> Iterator[dict[str, Any]]:
    """Yield a row per answer of a conversation: the prompt of the agent, and the answer without tool calls.

    Recalled items are not stored with a conversation, so that the memory is queried again: for current documents and
    facts, and for messages of other conversations that are older than the question.

    Args:
        agent: The agent with its current prompts, tools and memory.
        session: The conversation.
        template: The chat template of the text; None for messages only.
    """
    conversation = session.conversation
    stored = session.page(after=0, limit=max(1, len(conversation)))
    for turn, (start, stop) in enumerate(pairwise(turn_bounds(conversation))):
        if conversation[start].role != "user":
            continue
        answers = [message for message in conversation[start + 1 : stop] if message.role == "assistant"]
        for step, message in enumerate(answers, 1):
            if message.tool_calls or not message.text:
                continue
            ctx = turn_context(agent, session, turn, step=step).ctx
            composition = agent.chain.compose(_with_recall(agent, ctx, session, stored[start]))
            row = composition.to_sample(message, template)
            yield {name: value for name, value in row.items() if template is not None or name in ("messages", "tools")}


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
