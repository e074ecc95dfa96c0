"""`RunHandle`: a run that any process may look at, wait for, decide about, cancel and go on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic

from agentkit.durable.added_agents import AddedAgents
from agentkit.durable.durable_errors import RunCancelled, RunFailed
from agentkit.durable.stored.durable_store import DurableStore
from agentkit.durable.stored.run_request import RunRequest
from agentkit.errors import Paused
from agentkit.run.engine.events import ApprovalGiven, ConversationCompacted, Event, ModelReplied, Recalled, ToolFinished
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_steps import JournalStep
from agentkit.run.journal.trace import TraceSpan
from agentkit.run.parts.chain import Output
from agentkit.run.parts.decisions import Approved, Decision, Denied, decision
from agentkit.runs.run_record import RunError, RunRecord, WaitingCall

__all__ = ["RunHandle", "entry_events"]

_MIN_WAIT, _MAX_WAIT = 0.02, 0.5
"""Seconds between two looks at a run that has not ended."""


class RunHandle(Generic[Output]):
    """A durable run, by its id. It costs nothing to have, and may be made anew in any process: `runs.handle(run_id)`.

    Attributes:
        run_id: Id of the run.
    """

    __slots__ = ("_agents", "_store", "run_id")

    def __init__(self, store: DurableStore, agents: AddedAgents, run_id: str) -> None:
        self._store, self._agents = store, agents
        self.run_id = run_id

    async def info(self) -> RunRecord:
        """Return what is known of the run now.

        Raises:
            RunNotFound: There is no such run.
        """
        return await self._store.ask(lambda: self._store.any_info(self.run_id))

    async def inside(self) -> list[RunRecord]:
        """Return what is known of the agents that run inside of it as tools, at any depth, in the order they began.

        Each has a handle of its own, `runs.handle(info.run_id)`, with `info`, `journal`, `trace` and `events`. It is
        part of the run: whoever decides, cancels or resumes does that with the run.

        Raises:
            RunNotFound: There is no such run.
        """
        return await self._store.ask(lambda: self._store.rows.inside(self.run_id))

    async def journal(self) -> Journal:
        """Return what the run asked for and was answered so far: its messages, usage and decisions.

        Raises:
            RunNotFound: There is no such run.
        """
        return await self._store.ask(lambda: self._store.journal(self.run_id))

    async def decided(self) -> tuple[WaitingCall, ...]:
        """Return the calls that waited and were decided, each with the decision, who made it and when.

        Raises:
            RunNotFound: There is no such run.
        """
        return await self._store.ask(lambda: self._store.decided(self.run_id))

    async def trace(self) -> TraceSpan:
        """Return the run so far as spans, as JSON data; see `TraceSpan`.

        Raises:
            RunNotFound: There is no such run.
        """
        return (await self.journal()).trace()

    async def events(self, *, follow: bool = False) -> AsyncGenerator[Event[Any], None]:
        """Yield the events so far, each as soon as its step is stored; with `follow` until the run pauses or ends.

        They come from the journal: whole replies, no deltas. With `follow`, a database that stops answering is asked
        again until it does.
        """
        seen, wait, ask = 0, _MIN_WAIT, self._store.ask
        while True:
            # The state before the journal: nothing comes later.
            state = (await ask(lambda: self._store.any_info(self.run_id))).state if follow else "finished"
            journal = await ask(lambda: self._store.journal(self.run_id))
            ask = self._store.wait_for
            fresh = [event for number, events in entry_events(journal) if number >= seen for event in events]
            seen = len(journal.entries)
            for event in fresh:
                yield event
            if state not in ("queued", "running"):
                return
            wait = _MIN_WAIT if fresh else min(wait * 1.5, _MAX_WAIT)
            await asyncio.sleep(wait)

    async def result(self, *, timeout: float | None = None) -> RunRecord:
        """Wait until the run ends, and return how.

        A database that stops answering meanwhile is asked again until it does.

        Args:
            timeout: Seconds to wait; None for as long as it takes. The run goes on either way.

        Raises:
            Paused: It waits for decisions: `approve` or `deny` go on with it. `calls` and `journal` are those of it.
            RunFailed: It ended with an error.
            RunCancelled: It was cancelled.
            TimeoutError: It has not ended by then.
            RunNotFound: There is no such run.
            DatabaseUnavailable: The database does not answer the first time it is asked.
        """
        async with asyncio.timeout(timeout):
            wait, record = _MIN_WAIT, await self._store.ask(lambda: self._store.rows.get(self.run_id))
            while record.state in ("queued", "running"):
                await asyncio.sleep(wait)
                wait = min(wait * 1.5, _MAX_WAIT)
                record = await self._store.wait_for(lambda: self._store.rows.get(self.run_id))
            stopped = record
            return await self._store.wait_for(lambda: self._ended(stopped))

    def _ended(self, record: RunRecord) -> RunRecord:
        """Return how the run ended, with its journal."""
        journal = self._store.journal(self.run_id)
        error: RunFailed | RunCancelled | Paused
        if record.state == "finished":
            output = record.output
            added = self._agents.find(RunRequest.loads(self._store.queue.request(self.run_id)))
            if added is not None and record.finish_reason != "limit":
                output = added.agent.definition.chain.answer.of_data(output)
            return replace(record, output=output, journal=journal)
        if record.state == "waiting":
            agents = {call.call_id: call.agent for call in record.waiting if call.agent}
            error = Paused([call.call for call in record.waiting], agents)
        elif record.state == "cancelled":
            error = RunCancelled(self.run_id)
        else:
            failure = record.error or RunError("Error", "")
            error = RunFailed(self.run_id, failure.type, failure.message)
        error.messages, error.usage, error.journal = journal.messages, journal.usage, journal
        raise error

    async def approve(
        self, call: str | None = None, arguments: Mapping[str, Any] | None = None, *, by: str = ""
    ) -> None:
        """Let calls run that wait, and go on with the run once all are decided.

        Args:
            call: Id of one call; None for all that wait.
            arguments: What that call runs with in place of what the model wrote.
            by: Who decided; kept with the decision.

        Raises:
            ApprovalError: No such call waits, or it was decided already; nothing was stored.
            RunNotFound: There is no such run.
        """
        await self.decide({call: Approved(arguments)}, by=by)

    async def deny(self, call: str | None = None, reason: str = "", *, by: str = "") -> None:
        """Have calls that wait not run. See `approve`; the model reads the reason."""
        await self.decide({call: Denied(reason)}, by=by)

    async def decide(self, made: Mapping[str, Decision] | Mapping[str | None, Decision], *, by: str = "") -> None:
        """Store decisions by the ids of calls, None for all that wait: every one of them or none. See `approve`."""
        checked = {call: decision(one, call or "all calls") for call, one in made.items()}
        store = self._store
        await store.ask(lambda: store.rows.decide(self.run_id, checked, by, store.queue_leg))

    async def cancel(self) -> None:
        """End the run: nothing more of it begins, and what is under way is cancelled within seconds.

        A run that has ended stays as it is.

        Raises:
            RunNotFound: There is no such run.
        """
        await self._store.ask(self._cancel)

    def _cancel(self) -> None:
        if not self._store.rows.cancel(self.run_id):
            self._store.rows.get(self.run_id)  # raises RunNotFound if the run is unknown

    async def resume(self) -> None:
        """Go on with a run that failed or was cancelled: what was done is not done again.

        Raises:
            DurableError: It has finished, or waits for decisions.
            RunNotFound: There is no such run.
        """
        await self._store.ask(lambda: self._store.go_on(self.run_id))

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r})"


def entry_events(journal: Journal) -> Iterator[tuple[int, list[Event[Any]]]]:
    """Yield the number of each entry of a journal, from 0, and its events: whole replies, no deltas."""
    for step in journal.steps():
        if step.has_result:
            yield step.number, _events(step, journal.context.user_input.text)


def _events(step: JournalStep, query: str) -> list[Event[Any]]:
    answer = step.answer
    if step.kind == "model":
        return [ModelReplied(step.step, answer)]
    if step.kind == "tool":
        return [ToolFinished(step.step, answer[0])]
    if step.kind == "approval":
        return [ApprovalGiven(step.step, step.calls[id], made) for id, made in answer.items() if id in step.calls]
    if step.kind == "recall":
        return [Recalled(query, *answer)]
    if step.kind == "compact" and answer.messages:
        return [ConversationCompacted(answer.messages, answer.summary)]
    return []
