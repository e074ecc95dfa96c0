"""Starts and resumes runs: checks their options, claims their conversation, and ends them with a result or an error."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from agentkit.errors import AgentDefinitionError, LimitExceeded, RunBusy, SessionBusy
from agentkit.ground.threads import in_thread
from agentkit.run.engine.events import RunFinished
from agentkit.run.engine.journalled import Journalled
from agentkit.run.engine.listening import Listening
from agentkit.run.engine.loop import RunResult, run_loop
from agentkit.run.engine.nested_runs import Nesting
from agentkit.run.engine.observed import ObservedSteps, observer
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.run_steps import RunSteps
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_checks import check_journal, kept_in
from agentkit.run.journal.journal_file import keeping
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.agent_tools import check_deps
from agentkit.run.parts.chain import Output
from agentkit.run.parts.decisions import checked_approver, inner_pause
from agentkit.run.parts.recaller import RecallSource, in_scope
from agentkit.run.parts.run_context import Input, run_context, with_history, with_key
from agentkit.run.parts.session import Session, checked_session
from agentkit_prompts.composition.compose import Memo
from agentkit_prompts.errors import brief
from agentkit_tools.calling.deadline import DeadlineError, outcome

__all__ = ["new_journal", "resume_run", "start_run"]

T = TypeVar("T")
_GRACE = 6.0
"""Seconds that a run has to end after its time limit: more than its tools have after they are cancelled."""
_MIN_SECONDS = 0.1
"""Seconds that a listener has to take the end of a run, also if the time of the run is over."""


async def start_run(
    definition: AgentDefinition[Output], user_input: Input | None, options: Mapping[str, Any]
) -> RunResult[Output]:
    """Answer one user input; see `Agent.run`.

    Args:
        definition: The agent.
        user_input: The input; None to continue with the session.
        options: See `RunOptions`.
    """
    user_input = with_history(definition.chain, user_input, options)
    session = checked_session(options.get("session"))
    memory = in_scope(definition.memory, session, options.get("scope"))
    run_id = options.get("run_id")
    journal = new_journal(definition, memory, user_input, session, run_id)
    setup = RunSetup(
        definition,
        journal,
        journal.context,
        memory,
        session,
        options.get("deps"),
        _memo(definition, session),
        is_new=run_id is None,
        keep=options.get("journal"),
    )
    return await _perform(setup, options)


async def resume_run(
    definition: AgentDefinition[Output], journal: Journal | Path | str, options: Mapping[str, Any]
) -> RunResult[Output]:
    """Resume a run from its journal; see `Agent.resume`."""
    known = journal if isinstance(journal, Journal) else await in_thread(Journal.read, journal)
    keep = kept_in(known, options.get("journal"))
    session = checked_session(options.get("session"))
    await in_thread(check_journal, known, definition.name, session, options.get("approve"))
    scope = known.scope if session is None else None
    setup = RunSetup(
        definition,
        known.copy(),
        with_key(known.context, definition.chain, session, known.run_id),
        in_scope(definition.memory, session, scope),
        session,
        options.get("deps"),
        _memo(definition, session),
        known=known,
        keep=keep,
    )
    return await _perform(setup, options)


def new_journal(
    definition: AgentDefinition[Any],
    memory: RecallSource | None,
    user_input: Input | None,
    session: Session | None,
    run_id: str | None,
) -> Journal:
    """Return the journal of a new run.

    Raises:
        AgentDefinitionError: The id of the run is no text.
    """
    if run_id is None:
        run_id = os.urandom(16).hex()
    elif not isinstance(run_id, str) or not run_id:
        raise AgentDefinitionError(
            f"run_id: expected text, such as 'order-17', got {brief(run_id, 40)}: idempotency keys are made of it",
            name="run_id",
        )
    asked = "" if user_input is None else user_input
    ctx = run_context(definition.chain, definition.tools.specs, asked, session, run_id)
    scope = None if memory is None else getattr(getattr(memory, "scope", None), "names", None)
    session_id = None if session is None else session.id
    return Journal(definition.name, run_id, ctx, session_id, user_input is None, scope)


def _memo(definition: AgentDefinition[Any], session: Session | None) -> Memo:
    """Return the fragments of a session; a run without one begins with the declarations of its agent."""
    if session is not None:
        return session.memo
    return Memo(definition.tools.declared()[0])


async def _perform(setup: RunSetup[Output], options: Mapping[str, Any]) -> RunResult[Output]:
    """Check the options of a run, and perform it."""
    definition = setup.definition
    needing = definition.tools.declared()[1]
    if needing:
        check_deps(needing, setup.deps)
    listener = options.get("on_event")
    if "on_event_error" in options and "on_event" not in options:
        raise TypeError("on_event_error: there is no on_event whose errors it is about")
    listening = None if listener is None else Listening(listener, options.get("on_event_error", "raise"))
    emit = None if listening is None else listening.emit
    approve = checked_approver(options.get("approve"))
    nesting = Nesting(definition.limits, emit, approve, definition.chain.model)
    by = observer()
    if by is None:
        return await _ended(setup, nesting, RunSteps(setup, nesting), listening)
    setup.journal.has_layers = True
    with by.run(setup.journal) as ended:
        result = await _ended(setup, nesting, ObservedSteps(setup, nesting, by), listening)
        ended(result)
        return result


async def _ended(
    setup: RunSetup[Output], nesting: Nesting, steps: RunSteps, listening: Listening | None
) -> RunResult[Output]:
    """Perform a run to its end.

    Raises:
        SessionBusy: Another run is using the session.
        RunBusy: A run of this id is going on.
        LimitExceeded: The run used more than its limits allow.
        BaseException: The error that ended it, with the attributes `messages`, `usage` and `journal`.
    """
    limits = setup.definition.limits
    journalled = Journalled(steps, setup.journal, setup.known, nesting.price)
    began = asyncio.get_running_loop().time()
    try:
        with _claimed(setup, nesting, steps):
            work = _performed(setup, nesting, steps, journalled)
            result = await (work if limits.seconds is None else _within(limits.seconds, work, limits.seconds))
    except BaseException as raised:
        error = inner_pause(raised) or raised
        _complete(error, setup, steps)
        if error is not raised:
            raise error from error.__cause__
        cut = None
        if isinstance(error, LimitExceeded) and limits.on_limit == "return" and not steps.round_problem:
            cut = _cut(setup, journalled, error)
        if cut is None:
            raise
        result = cut
    if listening is not None:
        result.listener_errors = listening.errors
        try:
            taken = listening.emit(RunFinished(result))
            if taken is not None and limits.seconds is not None:
                left = began + limits.seconds - asyncio.get_running_loop().time()
                taken = _within(max(left, _MIN_SECONDS), taken, limits.seconds)
            if taken is not None:
                await taken
        except BaseException as error:
            _complete(error, setup, steps)
            raise
    return result


async def _performed(
    setup: RunSetup[Output], nesting: Nesting, steps: RunSteps, journalled: Journalled
) -> RunResult[Output]:
    """Perform the loop of a run, and write its journal if it is kept."""
    if setup.keep is not None:
        async with keeping(setup.journal, setup.keep, setup.known) as nesting.keeper:
            return await _looped(setup, nesting, steps, journalled)
    return await _looped(setup, nesting, steps, journalled)


async def _looped(
    setup: RunSetup[Output], nesting: Nesting, steps: RunSteps, journalled: Journalled
) -> RunResult[Output]:
    nesting.record(setup.journal, setup.known)
    journalled.keeper = nesting.keeper
    result = await run_loop(setup, journalled)
    if nesting.keeper is not None:
        await nesting.keeper.written()
    if setup.known is not None:
        steps.check_decisions()
    return result


async def _within(seconds: float, work: Awaitable[T], allowed: float) -> T:
    """Await a part of a run; cancel it after `seconds`.

    Raises:
        LimitExceeded: The run took longer than it is `allowed` to.
    """
    # The steps are cancelled first and closed a few seconds later, so that they can store results of tools.
    result, error = await outcome(_awaited(work), seconds, grace=_GRACE)
    if isinstance(error, DeadlineError):
        raise LimitExceeded("seconds", allowed, "allow more time, or use faster tools and listeners") from None
    if error is not None:
        raise error
    return cast(T, result)


async def _awaited(work: Awaitable[T]) -> T:
    return await work


@contextmanager
def _claimed(setup: RunSetup[Any], nesting: Nesting, steps: RunSteps) -> Iterator[None]:
    """Claim a run and its conversation until the end of the block; several sessions may have one conversation."""
    claim, session = object(), setup.session
    run_key: object = (setup.journal.agent, setup.journal.run_id)
    conversation: object = None
    if session is not None:
        conversation = getattr(session, "address", None) or id(session)
        if _RUNNING.setdefault(conversation, claim) is not claim:
            raise SessionBusy(session.id)
    if _RUNNING.setdefault(run_key, claim) is not claim:
        if session is not None:
            del _RUNNING[conversation]
        raise RunBusy(setup.journal.run_id)
    nesting.begin()
    try:
        yield
    finally:
        nesting.end()
        _RUNNING.pop(run_key, None)
        if session is not None and steps.writing is not None:
            # A write that hangs was left behind: no other run may use the conversation before its end.
            steps.writing.add_done_callback(lambda _: _RUNNING.pop(conversation, None))
        elif session is not None:
            _RUNNING.pop(conversation, None)


def _complete(error: BaseException, setup: RunSetup[Any], steps: RunSteps) -> None:
    """Give an error the messages, the usage and the journal of its run."""
    journal, problem = setup.journal, steps.round_problem
    with suppress(Exception):  # an exception without attributes
        if problem and problem not in getattr(error, "__notes__", ()):
            error.add_note(problem)
        error.messages = (*journal.messages, *steps.unstored)  # type: ignore[attr-defined]
        error.usage, error.journal = journal.usage + steps.usage_outside, journal  # type: ignore[attr-defined]


def _cut(setup: RunSetup[Output], journalled: Journalled, error: LimitExceeded) -> RunResult[Output] | None:
    """Return the result of a run that reached a limit: its last text, if the answer is text.

    None if nothing was sent, and no prompt can be composed.
    """
    journal, sent = setup.journal, journalled.sent
    if sent is None:
        try:
            sent = setup.definition.chain.compose(setup.ctx)
        except Exception:
            return None
    output: Any = None
    if sent.output is None:
        texts = [message.text for message in journal.messages if message.role == "assistant" and message.text]
        output = texts[-1] if texts else ""
    steps = sum([entry.effect == "CallModel" for entry in journal.entries])
    return RunResult(output, journal.messages, sent, journal.usage, steps, "limit", journal.run_id, journal, error)


_RUNNING: dict[object, object] = {}
"""Claims of runs and of conversations. `setdefault` is atomic, also between threads."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RUNNING.clear)  # the runs go on in the parent process only
