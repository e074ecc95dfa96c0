"""First prompt of a run, composed without starting the run: for tests, and for tools that show prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentkit.ground.sync_driver import run_blocking
from agentkit.run.engine.recalled_context import visible_count, with_recall
from agentkit.run.parts.run_context import Input, run_context
from agentkit.run.parts.run_scope import run_scope, within_scope
from agentkit.run.parts.session import SessionProtocol, checked_session
from agentkit_prompts.composition.composition import Composition

if TYPE_CHECKING:
    from agentkit.run.parts.agent_definition import AgentDefinition


def first_prompt(definition: AgentDefinition[Any], user_input: Input, options: Mapping[str, Any]) -> Composition:
    """Return the first composition of a run; see `Agent.compose`."""
    session: SessionProtocol | None = options.get("session")
    chain, tools = definition.chain, definition.tools
    memory = within_scope(definition.memory, run_scope(definition.memory, checked_session(session), options))
    ctx = run_context(chain, tools.specs, user_input, session, "", options.get("locale"))
    ctx = tools.added_to(ctx)
    chain.preflight(ctx.user_input)
    if definition.compaction is not None:
        from agentkit.run.parts.compaction import with_compaction

        ctx = with_compaction(definition.compaction, chain, ctx, session)
    # In the order of a run: compaction, tools, recall; each step reads the context of the steps before it.
    if tools.is_per_run:
        run_tools = run_blocking(tools.at(ctx))
        ctx = ctx.evolve(tools=tuple([tool.spec for tool in run_tools.values()]))
    if memory is not None:
        is_cut = session is not None and len(ctx.conversation) < len(session.conversation)
        count = visible_count(chain, ctx, None, is_cut=is_cut)
        ctx = with_recall(ctx, definition.search(memory, ctx.user_input.text, session, count))
    return chain.compose(ctx)
