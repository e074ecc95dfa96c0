"""Starts a run of an agent, or goes on with one: makes its driver, its loop and what listens."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from agentkit.ground.threads import in_thread
from agentkit.run.engine.asyncio_driver import AsyncDriver
from agentkit.run.engine.beginning import new_journal
from agentkit.run.engine.listening import Listening
from agentkit.run.engine.loop import RunResult, run_loop
from agentkit.run.engine.nested_runs import Nesting
from agentkit.run.engine.observed_driver import ObservedDriver, observed, observer
from agentkit.run.engine.single_run import Run
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_checks import check_journal, kept_in
from agentkit.run.journal.journal_file import Keep
from agentkit.run.parts.chain import Chain, Output
from agentkit.run.parts.compaction import Compaction
from agentkit.run.parts.decisions import checked_approver
from agentkit.run.parts.equipment import Equipment, check_deps
from agentkit.run.parts.limits import Limits
from agentkit.run.parts.recaller import Found, RecallSource, in_scope
from agentkit.run.parts.run_context import Input, with_history, with_key
from agentkit.run.parts.session import checked_session
from agentkit_prompts.composition.compose import Memo
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_tools.tool import Tool

__all__ = ["begin_run", "resume_run"]

Ask: TypeAlias = Callable[..., Found]
"""Asks a memory."""


class _Agent(Protocol[Output]):
    """What is needed of an agent."""

    name: str
    chain: Chain[Output]
    memory: RecallSource | None
    compaction: Compaction | None
    limits: Limits
    tools: Mapping[str, Tool]
    specs: tuple[ToolSpec, ...]


def begin_run(
    agent: _Agent[Output], equipment: Equipment, ask: Ask | None, user_input: Input | None, options: Mapping[str, Any]
) -> Coroutine[Any, Any, RunResult[Output]]:
    """Return the run of an input, to be awaited; see `Agent.run`.

    Args:
        agent: What runs.
        equipment: Its tools.
        ask: Asks its memory; None where it has none.
        user_input: The input; None goes on with the session.
        options: See `RunOptions`.
    """
    user_input = with_history(agent.chain, user_input, options)
    memory = in_scope(agent.memory, checked_session(options.get("session")), options.get("scope"))
    journal = new_journal(agent.name, agent.chain, agent.specs, memory, user_input, options)
    is_new, keep = options.get("run_id") is None, options.get("journal")
    return _run(agent, equipment, ask, journal, journal.context, memory, options, is_new=is_new, keep=keep)


async def resume_run(
    agent: _Agent[Output],
    equipment: Equipment,
    ask: Ask | None,
    journal: Journal | Path | str,
    options: Mapping[str, Any],
) -> RunResult[Output]:
    """Go on with a run from its journal; see `Agent.resume`."""
    known = journal if isinstance(journal, Journal) else await in_thread(Journal.read, journal)
    keep = kept_in(known, options.get("journal"))
    session = checked_session(options.get("session"))
    await in_thread(check_journal, known, agent.name, session, options.get("approve"))
    scope = None if known.scope is None or session is not None else known.scope
    memory = in_scope(agent.memory, session, scope)
    ctx = with_key(known.context, agent.chain, session, known.run_id)
    return await _run(agent, equipment, ask, known.copy(), ctx, memory, options, known=known, keep=keep)


def _run(
    agent: _Agent[Output],
    equipment: Equipment,
    ask: Ask | None,
    journal: Journal,
    ctx: PromptContext,
    memory: RecallSource | None,
    options: Mapping[str, Any],
    *,
    known: Journal | None = None,
    is_new: bool = False,
    keep: Keep | None = None,
) -> Coroutine[Any, Any, RunResult[Output]]:
    session, deps, listener = options.get("session"), options.get("deps"), options.get("on_event")
    declarations, needing = equipment.known()
    if needing:
        check_deps(needing, deps)
    if "on_event_error" in options and "on_event" not in options:
        raise TypeError("on_event_error: there is no on_event whose errors it is about")
    listening = None if listener is None else Listening(listener, options.get("on_event_error", "raise"))
    emit = None if listening is None else listening.emit
    chain, by = agent.chain, observer()
    nesting = Nesting(agent.limits, emit, checked_approver(options.get("approve")), chain.model)
    driver = (AsyncDriver if by is None else partial(ObservedDriver, by=by))(
        chain, equipment, agent.tools, ctx, session, deps, journal.run_id, is_new, nesting
    )
    if memory is not None and ask is not None:
        driver.recall = partial(ask, memory)
    driver.compaction = agent.compaction
    loop = run_loop(
        chain,
        ctx,
        None if equipment.is_own else agent.tools,
        nesting.limits,
        journal,
        recalls=memory is not None,
        compacts=agent.compaction is not None,
        equips_steps=equipment.is_each_step,
        memo=session.memo if session is not None else Memo(declarations),
    )
    run: Run[Output] = Run(driver, journal, listening, known, keep)  # `Run[...]()` is slow
    result = run.result(loop)
    return result if by is None else observed(by, journal, result)
