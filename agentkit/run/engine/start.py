"""Starts and resumes runs with validated options."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkit.errors import AgentDefinitionError
from agentkit.ground.short_errors import short_errors
from agentkit.ground.threads import in_thread
from agentkit.run.engine.attempt import Attempt
from agentkit.run.engine.current_run import CurrentRun
from agentkit.run.engine.event_sink import EventSink, HoldingSink
from agentkit.run.engine.observed import ObservedSteps, current_observer
from agentkit.run.engine.run_result import RunResult
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.run_steps import RunSteps
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_checks import check_journal, resumed_target
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.agent_tools import check_deps
from agentkit.run.parts.cancel_note import append_cancel_note
from agentkit.run.parts.chain import Output
from agentkit.run.parts.decisions import checked_approver
from agentkit.run.parts.deps_source import DepsSource
from agentkit.run.parts.run_context import Input, run_context, with_history, with_key
from agentkit.run.parts.run_inbox import checked_inbox
from agentkit.run.parts.run_scope import OuterRun, inner_memory, resumed_scope, run_scope, within_scope
from agentkit.run.parts.run_tags import checked_tags
from agentkit.run.parts.session import SessionProtocol, checked_session
from agentkit_prompts.composition.compose import RenderCache
from agentkit_prompts.errors import brief

if TYPE_CHECKING:
    from agentkit_memory import Scope


@short_errors
async def start_run(
    definition: AgentDefinition[Output], user_input: Input | None, options: Mapping[str, Any]
) -> RunResult[Output]:
    """Answer one user input; see `Agent.run`.

    Args:
        definition: The agent.
        user_input: The input; None answers the last message of the session.
        options: See `RunOptions`; and `outer`, the run whose tool the agent is. `deps` can be a `DepsSource`.
    """
    session = options.get("session")
    if session is not None:
        session = checked_session(session)
    outer: OuterRun | None = options.get("outer")
    locale = options.get("locale")
    if outer is None:
        scope = run_scope(definition.memory, session, options)
        memory = within_scope(definition.memory, scope)
    else:
        scope, memory = outer.scope, inner_memory(definition.memory, outer.scope, outer.memory)
        locale = outer.locale
    run_id = options.get("run_id")
    user_input = with_history(definition.chain, user_input, options)
    journal = new_journal(definition, scope, user_input, session, run_id, locale, options.get("tags", ()))
    setup = RunSetup(
        definition,
        journal,
        journal.context,
        memory,
        session,
        scope,
        options.get("deps"),
        _render_cache(definition, session),
        is_new=run_id is None,
        target=options.get("journal"),
        inbox=checked_inbox(options.get("inbox")),
    )
    return await _perform(setup, options)


@short_errors
async def resume_run(
    definition: AgentDefinition[Output], journal: Journal | Path | str, options: Mapping[str, Any]
) -> RunResult[Output]:
    """Resume a run from its journal; see `Agent.resume`."""
    # Files and databases are read in threads: they can be on a network drive or a server.
    if isinstance(journal, Journal):
        earlier = journal
    else:
        earlier = await in_thread(Journal.read, journal)
    target = resumed_target(earlier, options.get("journal"))
    session = checked_session(options.get("session"))
    await in_thread(check_journal, earlier, definition.name, session, options.get("approve"))
    outer: OuterRun | None = options.get("outer")
    if outer is None:
        scope = resumed_scope(definition.memory, session, earlier.scope)
        memory = within_scope(definition.memory, scope)
    else:
        scope, memory = outer.scope, inner_memory(definition.memory, outer.scope, outer.memory)
    setup = RunSetup(
        definition,
        earlier.copy(),  # the caller can resume its journal again, such as after a failed attempt
        with_key(earlier.context, definition.chain, session, earlier.run_id),
        memory,
        session,
        scope,
        options.get("deps"),
        _render_cache(definition, session),
        earlier=earlier,
        target=target,
        inbox=checked_inbox(options.get("inbox")),
    )
    return await _perform(setup, options)


def new_journal(
    definition: AgentDefinition[Any],
    scope: Scope | None,
    user_input: Input | None,
    session: SessionProtocol | None,
    run_id: str | None,
    locale: str | None,
    tags: Iterable[str],
) -> Journal:
    """Return the journal of a new run.

    Raises:
        AgentDefinitionError: The id of the run is not text, or a tag is invalid.
    """
    if run_id is None:
        run_id = os.urandom(16).hex()
    elif not isinstance(run_id, str) or not run_id:
        raise AgentDefinitionError(
            f"run_id: expected text, such as 'order-17', got {brief(run_id, 40)}: idempotency keys derive from it",
            name="run_id",
        )
    context_input = user_input
    if context_input is None:
        context_input = ""  # the run answers the last message of the session
    ctx = run_context(definition.chain, definition.tools.specs, context_input, session, run_id, locale)
    names = session_id = None
    if scope is not None:
        names = scope.names
    if session is not None:
        session_id = session.id
    journal = Journal(
        definition.name,
        run_id,
        ctx,
        session=session_id,
        continues_session=user_input is None,
        scope=names,
        version=definition.version,
        tags=checked_tags(tags),
    )
    guards = definition.guards
    journal.is_guarded = guards is not None and bool(guards.output or guards.tool_result)
    return journal


def _render_cache(definition: AgentDefinition[Any], session: SessionProtocol | None) -> RenderCache:
    """Return the cache of a session; without a session, a new cache with the tool declarations of the agent."""
    if session is not None:
        return session.render_cache
    return RenderCache(definition.tools.declared()[0])


async def _perform(setup: RunSetup[Output], options: Mapping[str, Any]) -> RunResult[Output]:
    """Check the options that new and resumed runs share, and perform the run with its deps."""
    outer: OuterRun | None = options.get("outer")
    if outer is None:
        setup.permissions = frozenset(options.get("permissions", ()))
    else:
        setup.permissions, setup.outer, setup.counts = outer.permissions, outer.state, outer.counts
    _, tools_with_deps = setup.definition.tools.declared()
    source = setup.definition.deps
    if isinstance(setup.deps, DepsSource):
        source = setup.deps
    elif source is None or setup.deps is not None:
        check_deps(tools_with_deps, setup.deps)
        return await _perform_with_deps(setup, options)
    async with source.opened(setup.caller(), tools_with_deps) as setup.deps:
        return await _perform_with_deps(setup, options)


async def _perform_with_deps(setup: RunSetup[Output], options: Mapping[str, Any]) -> RunResult[Output]:
    definition = setup.definition
    sink = None
    listener = options.get("on_event")
    if "on_event_error" in options and "on_event" not in options:
        raise TypeError("on_event_error: has an effect only with on_event")
    if listener is not None:
        create_sink = EventSink
        if definition.guards is not None:
            create_sink = HoldingSink
        sink = create_sink(listener, options.get("on_event_error", "raise"))
    approve = options.get("approve")
    if approve is not None:
        approve = checked_approver(approve)
    run = CurrentRun(definition.limits, sink, approve, definition.chain.model)
    if definition.summary_model is not None:
        # Checked now: the first summary can be needed after the run has spent money.
        run.spending.checked_price(definition.summary_model)
    if setup.inbox is None:
        return await _result(setup, run, sink)
    with setup.inbox.attached(setup.journal.run_id):
        try:
            return await _result(setup, run, sink)
        except (Exception, asyncio.CancelledError):
            # After the results of cancelled calls are stored.
            session = setup.session
            if setup.inbox.reason and session is not None:
                await in_thread(append_cancel_note, lambda: session, setup.journal.run_id, setup.inbox.reason)
            raise


async def _result(setup: RunSetup[Output], run: CurrentRun, sink: EventSink | None) -> RunResult[Output]:
    """Perform the run, with the observer of this process if it has one."""
    observer, definition = current_observer(), setup.definition
    if observer is None:
        return await Attempt(setup, run, RunSteps(setup, run), sink).result()
    setup.journal.has_layers = True
    with observer.run(setup.journal, definition.chain.model) as on_result:
        result = await Attempt(setup, run, ObservedSteps(setup, run, observer), sink).result()
        on_result(result)
        return result
