"""`ToolCalls`: the tool calls of one reply while they run: their contexts, their events, their results."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentkit.errors import AgentError, JournalError, Paused
from agentkit.models.model import Usage
from agentkit.run.engine import events
from agentkit.run.engine.steps import Ended, ToolRound
from agentkit.run.journal.journal import inner_id
from agentkit.run.parts.decisions import Approved, Denied, inner_pause
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.wire.clean import clean
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit.run.engine.current_run import CurrentRun
    from agentkit.run.engine.run_setup import RunSetup
    from agentkit_tools.tool import Tool

__all__ = ["CallWaits", "ToolCalls", "call_name", "what_stopped"]

_log = logging.getLogger("agentkit")


class ToolCalls:
    """The calls of one round. It is also the `RunState` that the tools see.

    Args:
        setup: The run.
        run: The run, as runs inside of it see it.
        tools: The tools by name.
        counts: Counts the calls of each tool.
        round_: The calls.
        ended: Takes each result.
    """

    def __init__(
        self,
        setup: RunSetup[Any],
        run: CurrentRun,
        tools: Mapping[str, Tool],
        counts: dict[str, int],
        round_: ToolRound,
        ended: Ended,
    ) -> None:
        self._deps = setup.deps
        self._run_id = setup.journal.run_id
        self._run = run
        self._tools = tools
        self._counts = counts
        self._round = round_
        self._ended = ended
        self._left = {call.id: call for call in round_.calls}  # the calls without a result
        self._started: set[str] = set()
        self._is_failed = False  # a result could not be written down: the others cannot follow it
        self._event_loop = asyncio.get_running_loop()
        self._telling: asyncio.Task[None] | None = None

    # The state of the run, for tools

    @property
    def step(self) -> int:
        """Number of the step."""
        return self._round.step

    @property
    def usage(self) -> Usage:
        """Tokens of the run so far."""
        return self._round.usage

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages until these calls; the message with the calls is the last."""
        return tuple([message for piece in self._round.messages for message in piece])

    def report(self, call_id: str, message: str, done: float | None, total: float | None) -> None:
        """Pass the progress of a call to the listener, from any thread; after its end it has none."""
        if self._run.listening is None:
            return
        try:
            is_here = asyncio.get_running_loop() is self._event_loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._tell(call_id, message, done, total)
        else:
            with suppress(RuntimeError):  # the loop is closed: the run is over
                self._event_loop.call_soon_threadsafe(self._tell, call_id, message, done, total)

    def _tell(self, call_id: str, message: str, done: float | None, total: float | None) -> None:
        listening, call = self._run.listening, self._left.get(call_id)
        if listening is None or call is None or self._is_failed:
            return
        with suppress(BaseException):  # a listener failed: the next event that the run itself has ends it
            listening.queue(events.ToolProgress(self.step, call, message, done, total))
            if listening.has_waiting and (self._telling is None or self._telling.done()):
                self._telling = self._event_loop.create_task(_await(listening))

    # The calls

    async def allowed(self) -> tuple[ToolCall, ...]:
        """Return the calls that may run, as they were approved; the others end here."""
        allowed: list[ToolCall] = []
        for call in self._round.calls:
            decision = self._round.decisions.get(call.id)
            if isinstance(decision, Denied):
                reason = f"it was denied: {clean(decision.reason)}" if decision.reason else "it was denied."
                denied = ToolResult(call.id, call.name, f"{call.name} was not called: {reason}", "denied")
                taken = self.on_end(denied)
                if taken is not None:
                    await taken
            elif decision is not None and decision.arguments is not None:
                allowed.append(replace(call, arguments=json.dumps(dict(decision.arguments))))
            else:
                allowed.append(call)
        return tuple(allowed)

    def context(self, call: ToolCall) -> ToolContext[Any]:
        approved = isinstance(self._round.decisions.get(call.id), Approved)
        return ToolContext(self._deps, self._run_id, call.id, approved=approved, calls=self._counts, run=self)

    def on_start(self, call: ToolCall) -> Awaitable[None] | None:
        run = self._run
        # Calls after a sequential one see its effect; a stopped call has had none yet.
        if run.stopped and self._is_behind(call):
            raise CallWaits
        if run.keeper is not None:
            run.keeper.check()  # the calls before it may have taken hours
        self._started.add(call.id)
        if run.listening is None:
            return None
        return run.listening.emit(events.ToolStarted(self.step, call))

    def on_end(self, result: ToolResult) -> Awaitable[None] | None:
        run = self._run
        if run.unfinished and result.call_id in run.unfinished and result.status in ("success", "error"):
            run.stop(result.call_id, JournalError(_changed(result), name=result.call_id))
        if result.error is not None:
            self._note_failure(result, result.error)
        # A stopped agent has no result: the run stops with it, and both continue together.
        if self._is_failed or result.call_id in run.stopped or result.call_id not in self._left:
            return None
        self._end(result)
        if run.keeper is not None and self._left:
            run.keeper.begin()  # other calls may take hours
        if run.listening is None:
            return None
        return run.listening.emit(events.ToolFinished(self.step, result))

    def _end(self, result: ToolResult) -> None:
        """Pass a result on, with the usage of runs inside of the call."""
        usage = self._run.spending.inner_usage(self._left.values(), result.call_id)
        # Set until the result is stored: if that raises, no other result of the round may be.
        self._is_failed = True
        self._ended(result, usage)
        self._is_failed = False
        del self._left[result.call_id]

    def _note_failure(self, result: ToolResult, error: BaseException) -> None:
        """Stop the run if an agent in the tool paused; log other errors."""
        paused = inner_pause(error)
        if paused is not None:
            self._run.stop(result.call_id, paused)
        if not self._is_failed and result.call_id not in self._run.stopped and _log.isEnabledFor(logging.WARNING):
            trace = clean("".join(traceback.format_exception(error)))  # a handler has to encode it
            _log.warning("run %s: the tool %s failed (%s)\n%s", self._run_id, result.name, result.call_id, trace)

    def _is_behind(self, call: ToolCall) -> bool:
        """Return True if a call waits for a stopped call: one of them is sequential, or a call between them."""
        has_stopped = is_behind = False
        for other in self._round.calls:
            tool = self._tools.get(other.name)
            is_sequential = tool is not None and tool.policy.sequential
            is_behind = is_behind or (is_sequential and has_stopped)
            if other.id == call.id:
                return is_behind
            if other.id in self._run.stopped:
                has_stopped, is_behind = True, is_behind or is_sequential
        return False

    def cut_short(self) -> None:
        """End the calls that have no result with one that states whether they may have had an effect."""
        for call in [*self._left.values()]:
            if self._is_failed:
                return
            text = f"{call.name} was not called: the run was cancelled first."
            if call.id in self._started:
                text = f"{call.name} was cancelled with the run. It may still have had an effect."
            self._end(ToolResult(call.id, call.name, text, "cancelled"))


class CallWaits(Exception):
    """A call must not begin, because a call before it has stopped."""


async def _await(taken: Awaitable[None]) -> None:
    with suppress(BaseException):
        await taken


def what_stopped(calls: Sequence[ToolCall], stopped: Mapping[str, Exception]) -> Exception:
    """Return the error of a run whose tools are agents that were stopped."""
    waiting: list[ToolCall] = []
    agents: dict[str, str] = {}
    for call in calls:
        error = stopped.get(call.id)
        if isinstance(error, Paused):
            for inner in error.calls:
                path = inner_id(call.id, inner.id)
                waiting.append(replace(inner, id=path))
                agents[path] = f"{call.name}/{error.agents[inner.id]}" if inner.id in error.agents else call.name
        elif isinstance(error, AgentError):
            named_error = copy(error).with_traceback(error.__traceback__)
            named_error.args = (f"{call_name(call)}: {error}",)
            named_error.path = named_error.path or call_name(call)
            named_error.__cause__ = error.__cause__
            return named_error
        elif error is not None:
            return error
    return Paused(waiting, agents)


def _changed(result: ToolResult) -> str:
    return (
        f"its agent did not continue its journal: the tool is missing or has changed since ({result.message.text:.200})"
    )


def call_name(call: ToolCall) -> str:
    """Return the name of a call in errors."""
    return f"{call.name} ({call.id})"
