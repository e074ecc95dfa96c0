"""`RunHandle`: a run that any process may look at, wait for, decide about, cancel and go on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from agentkit.durable.added_agents import AddedAgents
from agentkit.durable.durable_errors import RunCancelled, RunFailed
from agentkit.durable.stored.durable_store import DurableStore
from agentkit.durable.stored.run_info import RunInfo
from agentkit.durable.stored.run_tables import AskedCall
from agentkit.errors import ApprovalError, Paused
from agentkit.models.model import Usage
from agentkit.run.engine.events import ApprovalGiven, ConversationCompacted, Event, ModelReplied, Recalled, ToolFinished
from agentkit.run.journal.journal import Entry, Journal
from agentkit.run.journal.trace import TraceSpan
from agentkit.run.parts.chain import Output
from agentkit.run.parts.decisions import Approved, Decision, Denied, decision
from agentkit_prompts.context.messages import Message, ToolCall

__all__ = ["EndedRun", "RunHandle", "entry_events"]

_MIN_WAIT, _MAX_WAIT = 0.02, 0.5
"""Seconds between two looks at a run that has not ended."""


@dataclass(slots=True)
class EndedRun(Generic[Output]):
    """How a durable run ended, as any process can know it: a `RunResult` without what was sent last."""

    output: Output
    """The answer; JSON data where the handle was made without the agent."""
    run_id: str
    usage: Usage
    steps: int
    """Model calls."""
    finish_reason: str
    """`stop`, `length`, or `limit` where a limit ended it and `Limits.on_limit` is `return`."""
    journal: Journal = field(repr=False, compare=False)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the run added to the conversation, the user's message first."""
        return self.journal.messages

    @property
    def cost(self) -> float | None:
        """US dollars of all model calls; None where a price is not known."""
        return self.usage.money


class RunHandle(Generic[Output]):
    """A durable run, by its id. It costs nothing to have, and may be made anew in any process: `runs.handle(run_id)`.

    Attributes:
        run_id: Id of the run.
    """

    __slots__ = ("_agents", "_store", "run_id")

    def __init__(self, store: DurableStore, agents: AddedAgents, run_id: str) -> None:
        self._store, self._agents = store, agents
        self.run_id = run_id

    async def info(self) -> RunInfo:
        """Return what is known of the run now.

        Raises:
            RunNotFound: There is no such run.
        """
        return await self._store.ask(lambda: self._store.any_info(self.run_id))

    async def inside(self) -> list[RunInfo]:
        """Return what is known of the agents that run inside of it as tools, at any depth, in the order they began.

        Each has a handle of its own, `runs.handle(info.run_id)`, with `info`, `journal`, `trace` and `events`. It is
        part of the run: whoever decides, cancels or resumes does that with the run.

        Raises:
            RunNotFound: There is no such run.
        """
        return await self._store.ask(lambda: self._store.inside(self.run_id))

    async def journal(self) -> Journal:
        """Return what the run asked for and was answered so far: its messages, usage and decisions.

        Raises:
            RunNotFound: There is no such run.
        """
        return await self._store.ask(lambda: self._store.journal(self.run_id))

    async def decided(self) -> tuple[AskedCall, ...]:
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

    async def result(self, *, timeout: float | None = None) -> EndedRun[Output]:
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
            wait, found = _MIN_WAIT, await self._store.ask(self._outcome)
            while found is None:
                await asyncio.sleep(wait)
                wait = min(wait * 1.5, _MAX_WAIT)
                found = await self._store.wait_for(self._outcome)
            outcome = found
            return await self._store.wait_for(lambda: self._ended(outcome))

    def _outcome(self) -> Mapping[str, Any] | None:
        """Return how the run ended, or which calls wait; None while it goes on, or will as all of them are decided."""
        found = self._store.outcome(self.run_id)
        if found is None or found["state"] != "paused":
            return found
        waiting = [call for call in self._store.tables.calls([self.run_id]) if call.decision is None]
        return {**found, "waiting": waiting} if waiting else None

    def _ended(self, found: Mapping[str, Any]) -> EndedRun[Output]:
        """Return how the run ended, from its outcome."""
        state, journal = found["state"], self._store.journal(self.run_id)
        error: RunFailed | RunCancelled | Paused
        if state == "finished":
            output: Any = found["output"]
            added = self._agents.find(self._store.request(self.run_id))
            if added is not None and found["finish_reason"] != "limit":
                output = added.agent.definition.chain.answer.of_data(output)
            return EndedRun(output, self.run_id, journal.usage, found["steps"], found["finish_reason"], journal)
        if state == "paused":
            waiting = found["waiting"]
            agents = {call.call_id: call.agent for call in waiting if call.agent}
            error = Paused([ToolCall(call.call_id, call.tool, call.arguments) for call in waiting], agents)
        elif state == "cancelled":
            error = RunCancelled(self.run_id)
        else:
            error = RunFailed(self.run_id, found["kind"], found["message"])
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
        await self._store.ask(lambda: self._decide(checked, by))

    def _decide(self, made: Mapping[str | None, Decision], by: str) -> None:
        store = self._store
        store.info(self.run_id)
        calls = store.tables.calls([self.run_id])
        waiting = [one.call_id for one in calls if one.decision is None]
        every = made.get(None)
        if isinstance(every, Approved) and every.arguments is not None and len(waiting) > 1:
            raise ApprovalError(
                f"run {self.run_id!r}: arguments are those of one call: name it, of {_listed(waiting)}",
                name="arguments",
            )
        wanted = {} if every is None else dict.fromkeys(waiting, every)
        wanted |= {call: one for call, one in made.items() if call is not None}
        if not wanted:
            last = "".join([f"; {_decided(one)}" for one in calls][-1:])
            raise ApprovalError(
                f"run {self.run_id!r}: no call of it waits{last}; nothing was decided",
                name="approve",
                value="nothing waits",
            )
        taken = store.tables.decide(self.run_id, wanted, by)
        if taken:
            calls = store.tables.calls([self.run_id])  # somebody else may have been first
            waiting = [one.call_id for one in calls if one.decision is None]
            decided = {one.call_id: one for one in calls if one.decision is not None}
            known = [_decided(decided[one]) for one in taken if one in decided]
            unknown = [one for one in taken if one not in decided]
            if unknown:
                known.append(f"no call that waits has the id {_listed(unknown)}; those that wait: {_listed(waiting)}")
            raise ApprovalError(
                f"run {self.run_id!r}: {'; '.join(known)}; nothing was decided", name="approve", value=", ".join(taken)
            )
        if not set(waiting) - wanted.keys():
            store.go_on(self.run_id, only_if="paused")

    async def cancel(self) -> None:
        """End the run: nothing more of it begins, and what is under way is cancelled within seconds.

        A run that has ended stays as it is.

        Raises:
            RunNotFound: There is no such run.
        """
        await self._store.ask(lambda: self._store.cancel(self.run_id))

    async def resume(self) -> None:
        """Go on with a run that failed or was cancelled: what was done is not done again.

        Raises:
            DurableError: It has finished, or waits for decisions.
            RunNotFound: There is no such run.
        """
        await self._store.ask(lambda: self._store.go_on(self.run_id))

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r})"


def _decided(call: AskedCall) -> str:
    by = f" by {call.decided_by}" if call.decided_by else ""
    return f"{call.call_id} was decided already{by}: {call.decision!r:.80}"


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def entry_events(journal: Journal) -> Iterator[tuple[int, list[Event[Any]]]]:
    """Yield the number of each entry of a journal, from 0, and its events: whole replies, no deltas."""
    step, calls, query = 0, dict[str, ToolCall](), journal.context.user_input.text
    for number, entry in enumerate(journal.entries):
        if entry.effect == "CallModel":
            step += 1
            calls = {call.id: call for call in entry.answer.message.tool_calls}
        yield number, _of_entry(entry, step, calls, query)


def _of_entry(entry: Entry, step: int, calls: Mapping[str, ToolCall], query: str) -> list[Event[Any]]:
    effect, answer, *_ = entry
    if effect == "CallModel":
        return [ModelReplied(step, answer)]
    if effect == "CallTools":
        return [ToolFinished(step, answer[0])]
    if effect == "AskApproval":
        return [ApprovalGiven(step, calls[call], made) for call, made in answer.items() if call in calls]
    if effect == "Recall":
        return [Recalled(query, *answer)]
    if effect == "Compact" and answer.messages:
        return [ConversationCompacted(answer.messages, answer.summary)]
    return []
