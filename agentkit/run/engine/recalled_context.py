"""Recalled items in the context of a run."""

from __future__ import annotations

from typing import Any

from agentkit.run.parts.chain import Chain
from agentkit.run.parts.recaller import RecallResult
from agentkit.run.parts.repairs import is_repair
from agentkit_prompts.composition.compose import RenderCache
from agentkit_prompts.context.prompt_context import PromptContext


def visible_count(
    chain: Chain[Any], ctx: PromptContext, cache: RenderCache | None, *, is_cut: bool = False
) -> int | None:
    """Return the number of the latest messages that a prompt without recalled items shows; None for all.

    `is_cut`: True if `ctx` contains only the end of the conversation.
    """
    # Without a budget, a prompt shows the whole conversation, so that no composition is necessary.
    if (chain.budget is None and not hasattr(chain.model, "fitted")) or not len(ctx.conversation):
        if not is_cut:
            return None
        return len(ctx.conversation)
    return len(chain.compose(ctx, cache=cache).conversation)


def with_recall(ctx: PromptContext, result: RecallResult) -> PromptContext:
    """Return the context with recalled items; recalled facts come after the facts of the context.

    Repair messages are omitted: they have the role of the user, but can quote the model.
    """
    recalled = tuple([message for message in result.recalled if not is_repair(message)])
    knowledge = (*ctx.knowledge, *result.knowledge)
    return ctx.evolve(documents=result.documents, knowledge=knowledge, recalled=recalled)
