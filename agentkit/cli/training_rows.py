"""Fine-tuning rows of a stored conversation."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from agentkit.agent import Agent
from agentkit.recaller import in_scope, recall, shown_options
from agentkit.run.loop import remembering
from agentkit.run_context import with_key
from agentkit_memory.conversations.stored_session import StoredSession
from agentkit_memory.store.records import StoredMessage
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.prompt_context import PromptContext, UserInput

__all__ = ["training_rows"]


def training_rows(agent: Agent[Any, Any], session: StoredSession, template: str | None) -> Iterator[dict[str, Any]]:
    """Yield a row for each answer, an assistant message that calls no tools: what the agent would be sent, and it.

    What memory had found then is not stored, so it is asked again: for documents and facts there are now, and for
    messages of other conversations from before the question.

    Args:
        agent: The agent, with its prompts, tools and memory as they are now.
        session: The conversation.
        template: The chat template of the text; None for messages only.
    """
    stored = session.page(after=0, limit=max(1, len(session.conversation)))
    messages = [one.message for one in stored]
    for at, message in enumerate(messages):
        if message.role != "assistant" or message.tool_calls or not message.text:
            continue
        first = max((place for place in range(at) if messages[place].role == "user"), default=None)
        if first is None:
            continue
        ctx = PromptContext(
            user_input=UserInput(messages[first].content),
            conversation=Conversation(messages[:first]),
            intermediate=Conversation(messages[first + 1 : at]),
            tools=agent.specs,
        )
        ctx = with_key(_remembering(agent, ctx, session, stored[first]), agent.chain, session, "")
        row = agent.chain.compose(ctx).to_sample(message, template)
        yield {name: value for name, value in row.items() if template is not None or name in ("messages", "tools")}


def _remembering(
    agent: Agent[Any, Any], ctx: PromptContext, session: StoredSession, question: StoredMessage
) -> PromptContext:
    memory = in_scope(agent.memory, session, None)
    if memory is None or not ctx.user_input.text:
        return ctx
    options = shown_options(agent.recall, agent.chain.layers)
    found = recall(memory, ctx.user_input.text, session, options=options)
    asked = datetime.fromtimestamp(question.said_at, UTC)
    before = [one for one in found.recalled if one.when is None or one.when < asked]
    return remembering(ctx, found._replace(recalled=tuple(before)))
