"""Examples of runs: of evaluations, whose journals are files, and of a database of runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from agentkit.agent.agent import Agent
from agentkit.errors import JournalError
from agentkit.evals.evaluation_errors import EvaluationError
from agentkit.evals.outcome import Outcome
from agentkit.evals.outcome_file import read_journals
from agentkit.run.engine.replay import replayed_contexts
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.agent_version import changed_names
from agentkit.run.parts.session import SessionProtocol
from agentkit.runs.run_record import RunRecord, RunsWanted
from agentkit.runs.run_store import RunStore
from agentkit.training.training_errors import ExportError
from agentkit.training.training_example import LeftOut, Origin, TrainingExample, TrainingSource
from agentkit_memory import Memory, Scope
from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import PromptError

SessionFinder: TypeAlias = Callable[[str, str], SessionProtocol | None]
"""Function that returns the session of a user (empty: no user) with an id; None if it does not exist."""
_PAGE = 200
"""Number of runs per query."""


def evaluated_runs(
    agent: Agent[Any, Any], file: str | os.PathLike[str], *, uses_present_prompts: bool = False
) -> Iterator[TrainingSource]:
    """Yield the runs of an evaluation, in the order of the rows and repeats.

    Args:
        agent: The agent that was evaluated.
        file: The file `out=` of the evaluation.
        uses_present_prompts: True to write the present prompts of the agent into the rows of runs with other prompts;
            if False, these runs are left out.

    Raises:
        ExportError: The file is no file of an evaluation.
    """
    try:
        report, journals_of_outcomes = read_journals(file)
    except EvaluationError as error:
        raise ExportError(str(error), path=error.path) from error
    for outcome, journals in zip(report.outcomes, journals_of_outcomes, strict=True):
        for turn, path in enumerate(journals, 1):
            number = turn if len(journals) > 1 else None
            yield _evaluated_turn(agent, outcome, number, path, uses_present_prompts)


def _evaluated_turn(
    agent: Agent[Any, Any], outcome: Outcome, turn: int | None, path: Path, uses_present_prompts: bool
) -> TrainingSource:
    row = outcome.row
    scores = {name: score.value for name, score in outcome.scores.items()}
    origin = Origin(agent=agent.name, row=row.id, turn=turn, scores=scores, tags=row.tags)
    try:
        journal = Journal.read(path)
    except (OSError, JournalError) as error:
        return LeftOut(origin.place, f"its journal cannot be read: {error}")
    memory = _memory_of(agent)
    owner, start = _owner(memory, journal, row.user), _start(journal)

    def is_erased() -> bool:
        return not path.is_file() or _was_erased(memory, owner, start)

    origin = replace(origin, run=journal.run_id)
    return _example(agent, journal, None, origin, is_erased, uses_present_prompts=uses_present_prompts)


def stored_runs(
    agent: Agent[Any, Any],
    store: RunStore,
    *,
    tenant: str | None = None,
    user: str | None = None,
    session_of: SessionFinder | None = None,
    uses_present_prompts: bool = False,
) -> Iterator[TrainingSource]:
    """Yield the finished runs of an agent in a database, the newest first.

    Args:
        agent: The agent.
        store: The runs.
        tenant: Tenant of the runs; None for all tenants.
        user: User of the runs; None for all users.
        session_of: Returns the sessions of runs; None if no run has a session.
        uses_present_prompts: See `evaluated_runs`.
    """
    before: str | None = None
    while True:
        wanted = RunsWanted(
            tenant=tenant, user=user, agent=agent.name, state="finished", before=before, limit=_PAGE, is_short=True
        )
        page = store.listed(wanted)
        for record in page.runs:
            yield _stored_run(agent, store, record, session_of, uses_present_prompts)
        before = page.older
        if before is None:
            return


def _stored_run(
    agent: Agent[Any, Any],
    store: RunStore,
    record: RunRecord,
    session_of: SessionFinder | None,
    uses_present_prompts: bool,
) -> TrainingSource:
    session_name = record.session or ""
    origin = Origin(agent=agent.name, run=record.run_id, session=session_name, tags=record.tags, at=record.created_at)
    try:
        journal = store.journal(record.run_id)
    except JournalError as error:
        return LeftOut(origin.place, str(error))
    if journal is None:
        return LeftOut(origin.place, "it has no journal, or was deleted during the export")
    session = None
    if journal.session is not None and session_of is not None:
        session = session_of(record.user, journal.session)
    owner = _owner(_memory_of(agent), journal, record.user)

    def is_erased() -> bool:
        return not store.has(record.run_id) or _was_erased(_memory_of(agent), owner, record.created_at)

    return _example(agent, journal, session, origin, is_erased, uses_present_prompts=uses_present_prompts)


def _example(
    agent: Agent[Any, Any],
    journal: Journal,
    session: SessionProtocol | None,
    origin: Origin,
    is_erased: Callable[[], bool],
    *,
    uses_present_prompts: bool,
) -> TrainingSource:
    """Return the example of a run, or the reason why it has none."""
    place = origin.place
    if is_erased():
        return LeftOut(place, "it was erased", is_erased=True)
    if journal.agent != agent.name:
        return LeftOut(place, f"it is a run of the agent {journal.agent!r:.60}")
    reply = _answer(journal)
    if reply is None:
        return LeftOut(place, "it has no answer of the model")
    changed = _changed_parts(agent, journal)
    if changed and not uses_present_prompts:
        return LeftOut(place, f"the prompts of the agent have changed since: {', '.join(changed[:5])}")
    try:
        contexts = replayed_contexts(agent.definition, journal, session)
        composition = agent.chain.compose(contexts[-1])
    except (JournalError, PromptError) as error:
        return LeftOut(place, f"its prompt cannot be composed: {error}")
    start = origin.at
    if start is None:
        start = _start(journal)
    origin = replace(
        origin, version=journal.version, parts=journal.parts, is_current=bool(changed) or not journal.parts, at=start
    )
    return TrainingExample(composition, reply, origin, is_erased)


def _answer(journal: Journal) -> Message | None:
    """Return the answer of a run; None if the run has not ended with an answer of the model."""
    messages = journal.messages
    if not messages or messages[-1].role != "assistant" or messages[-1].tool_calls:
        return None
    return messages[-1]


def _changed_parts(agent: Agent[Any, Any], journal: Journal) -> list[str]:
    """Return the names of the prompts and tools that differ from the run; empty if the run has no versions."""
    if not journal.parts:
        return []
    return changed_names(journal.parts, agent.definition.version.hashes)


def _start(journal: Journal) -> float | None:
    return next((entry.at for entry in journal.entries if entry.at is not None), None)


def _memory_of(agent: Agent[Any, Any]) -> Memory | None:
    """Return the memory of an agent, which stores erasures; None if the agent has another source of recalls."""
    if isinstance(agent.memory, Memory):
        return agent.memory
    return None


def _owner(memory: Memory | None, journal: Journal, user: str) -> Scope | None:
    """Return the scope of a run; None without a memory."""
    if memory is None:
        return None
    if journal.scope is not None:
        return Scope(*journal.scope)
    return memory.scope.narrow(user=user)


def _was_erased(memory: Memory | None, owner: Scope | None, since: float | None) -> bool:
    if memory is None or owner is None:
        return False
    return memory.was_erased(owner, since or 0.0)
