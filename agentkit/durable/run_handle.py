"""`RunHandle`: a durable run by its id: reads, waits for, decides about, cancels and resumes the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Generic

from agentkit.durable.added_agents import AddedAgents
from agentkit.durable.durable_errors import RunCancelled, RunFailed
from agentkit.durable.stored.durable_store import DurableStore
from agentkit.durable.stored.run_request import RunRequest
from agentkit.errors import ApprovalError, Paused
from agentkit.run.engine.events import (
    ApprovalGiven,
    ConversationCompacted,
    Event,
    MessageReceived,
    ModelReplied,
    Recalled,
    ToolFinished,
)
from agentkit.run.journal.accepted_replies import accepted
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_steps import JournalStep
from agentkit.run.journal.trace import TraceSpan
from agentkit.run.parts.cancel_note import append_cancel_note, checked_reason
from agentkit.run.parts.chain import Output
from agentkit.run.parts.decisions import Approved, Decision, Denied, decision
from agentkit.run.parts.run_inbox import Moment, SentMessage, checked_message
from agentkit.runs.run_decisions import CallDecisions
from agentkit.runs.run_record import RunError, RunRecord, RunState, WaitingCall
from agentkit_prompts.context.parts import Part
from agentkit_prompts.hints import Hinted
from agentkit_tools.calling.tool_result import ToolResult

_log = logging.getLogger("agentkit")

_PROBLEM_SECONDS = 1.0
"""Seconds without progress before `result` logs the problem of a run, such as a missing worker."""
_MIN_WAIT, _MAX_WAIT = 0.02, 0.5
"""Seconds between two reads of a run that has not finished."""


class RunHandle(Generic[Output], metaclass=Hinted):
    """A durable run, by its id. `runs.handle(run_id)` creates a handle in any process, without a database request.

    Attributes:
        run_id: Id of the run.
    """

    __slots__ = ("_agents", "_store", "run_id")

    def __init__(self, store: DurableStore, agents: AddedAgents, run_id: str) -> None:
        self._store, self._agents = store, agents
        self.run_id = run_id

    async def info(self) -> RunRecord:
        """Return the record of the run.

        Raises:
            RunNotFound: The run is unknown.
        """
        return await self._store.ask(lambda: self._store.any_info(self.run_id))

    async def inside(self) -> list[RunRecord]:
        """Return the records of inner agents that run as tools, at any depth, in the order of their start.

        `runs.handle(info.run_id)` is a handle of an inner agent, with `info`, `journal`, `trace` and `events`.
        Decisions, cancellation and resumption belong to the outer run.

        Raises:
            RunNotFound: The run is unknown.
        """
        return await self._store.ask(lambda: self._store.rows.inside(self.run_id))

    async def journal(self) -> Journal:
        """Return the journal of the run so far: its messages, usage and decisions.

        Raises:
            RunNotFound: The run is unknown.
        """
        return await self._store.ask(lambda: self._store.journal(self.run_id))

    async def decided(self) -> tuple[WaitingCall, ...]:
        """Return the decided calls, with their decisions, and the author and time of each decision.

        Raises:
            RunNotFound: The run is unknown.
        """
        return await self._store.ask(lambda: self._store.decided(self.run_id))

    async def trace(self) -> TraceSpan:
        """Return the run so far as spans, as JSON data; see `TraceSpan`.

        Raises:
            RunNotFound: The run is unknown.
        """
        return (await self.journal()).trace

    async def events(self, *, follow: bool = False) -> AsyncGenerator[Event[Any], None]:
        """Yield the events so far; with `follow` also later events, until the run pauses or finishes.

        The events derive from the journal: whole replies, no deltas. With `follow`, requests are repeated while the
        database does not respond.
        """
        seen, wait, ask = 0, _MIN_WAIT, self._store.ask
        while True:
            # The state first: if the run has finished, the journal that is read after it is complete.
            state: RunState = "finished"
            if follow:
                state = (await ask(lambda: self._store.any_info(self.run_id))).state
            journal = await ask(lambda: self._store.journal(self.run_id))
            ask = self._store.wait_for
            new_events = [event for number, events in entry_events(journal) if number >= seen for event in events]
            seen = len(journal.entries)
            for event in new_events:
                yield event
            if state not in ("queued", "running"):
                return
            wait = min(wait * 1.5, _MAX_WAIT)
            if new_events:
                wait = _MIN_WAIT
            await asyncio.sleep(wait)

    async def result(self, *, timeout: float | None = None) -> RunRecord:
        """Wait until the run finishes, and return its record.

        Requests are repeated while the database does not respond. A problem of the run, such as a missing worker, is
        logged once as a warning.

        Args:
            timeout: Maximum seconds; None: unlimited. The run continues after a timeout.

        Raises:
            Paused: The run waits for decisions; `approve` and `deny` continue the run.
            RunFailed: The run failed with an error.
            RunCancelled: The run was cancelled.
            TimeoutError: The run has not finished within `timeout`.
            RunNotFound: The run is unknown.
            DatabaseUnavailable: The database does not respond to the first request.
        """
        async with asyncio.timeout(timeout):
            wait, record = _MIN_WAIT, await self._store.ask(lambda: self._store.rows.get(self.run_id))
            waited = 0.0
            while record.state in ("queued", "running"):
                await asyncio.sleep(wait)
                if waited < _PROBLEM_SECONDS <= waited + wait:
                    await self._log_problem()
                waited += wait
                wait = min(wait * 1.5, _MAX_WAIT)
                record = await self._store.wait_for(lambda: self._store.rows.get(self.run_id))
            stopped = record
            return await self._store.wait_for(lambda: self._finished_record(stopped))

    async def _log_problem(self) -> None:
        """Log the problem of a run that waits, such as a missing worker."""
        info = await self._store.wait_for(lambda: self._store.any_info(self.run_id))
        if info.problem is not None:
            _log.warning("run %s: %s", self.run_id, info.problem)

    def _finished_record(self, record: RunRecord) -> RunRecord:
        """Return the record of a finished run, with its journal.

        Raises:
            Paused: The run waits for decisions.
            RunFailed: The run failed.
            RunCancelled: The run was cancelled.
        """
        journal = self._store.journal(self.run_id)
        error: RunFailed | RunCancelled | Paused
        if record.state == "finished":
            output = record.output
            added = self._agents.find(RunRequest.loads(self._store.queue.request(self.run_id)))
            if added is not None and record.finish_reason != "limit":
                output = added.agent.definition.chain.answer.from_data(output)
            return replace(record, output=output, journal=journal)
        if record.state == "waiting":
            agents = {call.call_id: call.agent for call in record.waiting if call.agent}
            error = Paused([call.call for call in record.waiting], agents)
        elif record.state == "cancelled":
            error = RunCancelled(self.run_id, record.reason)
        else:
            failure = record.error or RunError("Error", "")
            error = RunFailed(self.run_id, failure.type, failure.message)
        error.messages, error.usage, error.journal = journal.messages, journal.usage, journal
        raise error

    async def send(
        self,
        message: str | Part | Iterable[str | Part],
        *,
        when: Moment = "next_step",
        by: str = "",
        key: str | None = None,
    ) -> None:
        """Send a message to the run, which receives each message once, in the order in which they were sent.

        A run that waits for decisions receives it after the decisions. If the run ends without it, such as with an
        error, it is in `unread`, and a resumed run receives it.

        Args:
            message: Text, or parts, of a user.
            when: `next_step`: the run receives the message before its next model call; `idle`: the run receives it when
                it would end with its answer.
            by: Name of the sender, stored with the message.
            key: Idempotency key: a message with a key that this run knows is not sent again.

        Raises:
            RunEnded: The run has ended, so that it would never receive the message.
            RunNotFound: The run is unknown.
            ContextError: The message is not text or parts.
            AgentDefinitionError: `when`, `by` or `key` is invalid.
            DurableError: The key was used for another message, or too many messages are unread.
        """
        sent = checked_message(message, when, by, key)
        await self._store.ask(lambda: self._store.rows.messages.send(self.run_id, sent, key))

    async def unread(self) -> list[SentMessage]:
        """Return the messages that the run has not received, in the order in which they were sent."""
        return await self._store.ask(lambda: self._store.rows.messages.unread(self.run_id))

    async def approve(
        self, call: str | None = None, arguments: Mapping[str, Any] | None = None, *, by: str = ""
    ) -> None:
        """Approve waiting calls. The run continues when all waiting calls are decided.

        Args:
            call: Id of a call; None: all waiting calls.
            arguments: Arguments that replace the arguments of the model.
            by: Author of the decision, stored with the decision.

        Raises:
            ApprovalError: The call does not wait, or was decided already, or the arguments do not match the schema of
                its tool; nothing was stored.
            RunNotFound: The run is unknown.
        """
        await self.decide({call: Approved(arguments)}, by=by)

    async def deny(self, call: str | None = None, reason: str = "", *, by: str = "") -> None:
        """Deny waiting calls. The model receives the reason. See `approve`."""
        await self.decide({call: Denied(reason)}, by=by)

    async def decide(self, decisions: Mapping[str, Decision] | Mapping[str | None, Decision], *, by: str = "") -> None:
        """Store all decisions or none. Keys are call ids, or None for all waiting calls. See `approve`."""
        checked = _checked(decisions)
        store = self._store
        await store.ask(lambda: store.rows.decide(self.run_id, checked, by, store.queue_leg))

    async def cancel(self, reason: str = "") -> None:
        """Cancel the run: no step starts, and running steps are cancelled within seconds.

        A finished run stays unchanged.

        Args:
            reason: Reason of the cancellation: the results of cancelled calls and the session contain it, so that the
                model of the next run reads it. In the session of a run that is not running, only if the agent of the
                run was added in this process.

        Raises:
            RunNotFound: The run is unknown.
            AgentDefinitionError: The reason is not text, or is too long; nothing was cancelled.
        """
        checked = checked_reason(reason)
        await self._store.ask(lambda: self._cancel(checked))

    def _cancel(self, reason: str) -> None:
        rows = self._store.rows
        record = rows.get(self.run_id)
        if not rows.cancel(self.run_id, reason) or not reason or record.state == "running":
            return
        # No attempt executes the run: the worker of a running run stores the reason after the results of its calls.
        request = RunRequest.loads(self._store.queue.request(self.run_id))
        added = self._agents.find(request)
        if request.session is not None and added is not None:
            append_cancel_note(partial(added.session, request.session), self.run_id, reason)

    async def resume(self) -> None:
        """Resume a failed or cancelled run after its last stored step.

        Raises:
            DurableError: The run has finished, or waits for decisions.
            RunNotFound: The run is unknown.
        """
        await self._store.ask(lambda: self._store.resume(self.run_id))

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r})"


def _checked(decisions: object) -> CallDecisions:
    """Return decisions by the ids of calls.

    Raises:
        ApprovalError: The value is not a mapping of call ids to decisions, or is empty.
    """
    values: Mapping[Any, Any] = {}
    if isinstance(decisions, Mapping):
        values = decisions
    if not values or not all(isinstance(call, str | None) for call in values):
        raise ApprovalError(
            "decisions: expected decisions by the ids of calls, such as {'call_1': Approved()}, with None for all "
            f"waiting calls, got {decisions!r:.80}; nothing was decided",
            name="decisions",
            value=type(decisions).__name__,
        )
    return {call: decision(answer, call or "all calls") for call, answer in values.items()}


def entry_events(journal: Journal) -> Iterator[tuple[int, list[Event[Any]]]]:
    """Yield the number of each entry of a journal, from 0, and its events: whole replies, no deltas."""
    steps = journal.steps()
    for step in steps:
        if not step.has_result:
            continue
        if journal.is_guarded and step.kind in ("model", "tool", "append"):
            yield step.number, _accepted_events(step, steps)
        else:
            yield step.number, _events(step, journal.context.user_input.text)


def _accepted_events(step: JournalStep, steps: list[JournalStep]) -> list[Event[Any]]:
    """Return the events of a step of a guarded run: a value has an event when its guards have accepted it."""
    if step.kind != "append":
        return []
    events: list[Event[Any]] = []
    for value in accepted(step, steps):
        if isinstance(value, ToolResult):
            events.append(ToolFinished(step.step, value))
        else:
            events.append(ModelReplied(step.step, value))
    return events


def _events(step: JournalStep, query: str) -> list[Event[Any]]:
    answer = step.answer
    if step.kind == "model":
        return [ModelReplied(step.step, answer)]
    if step.kind == "tool":
        return [ToolFinished(step.step, answer[0])]
    if step.kind == "approval":
        return [
            ApprovalGiven(step.step, step.calls[id], decision) for id, decision in answer.items() if id in step.calls
        ]
    if step.kind == "receive":
        return [MessageReceived(step.step, sent) for sent in answer]
    if step.kind == "recall":
        return [Recalled(query, *answer)]
    if step.kind == "compact" and answer.messages:
        return [ConversationCompacted(answer.messages, answer.summary)]
    return []
