"""One round of tool calls, those of one reply: what each of them knows of the run, and what listeners hear."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from agentkit.errors import AgentError, JournalError, Paused
from agentkit.models.model import Usage
from agentkit.run.engine import events
from agentkit.run.engine.effects import CallTools, Effect
from agentkit.run.journal.journal import inner_id
from agentkit.run.parts.decisions import Approved, Denied, inner_pause
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.wire.clean import clean
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit.run.engine.nested_runs import Nesting
    from agentkit_tools.tool import Tool

__all__ = ["CallWaits", "ToolRound", "named", "what_stopped"]

_log = logging.getLogger("agentkit")


class _Driver(Protocol):
    """What is needed of the driver."""

    nesting: Nesting
    deps: Any
    run_id: str
    calls: dict[str, int]
    tools: Mapping[str, Tool]


class ToolRound:
    """The calls of one reply: the context of each, the events of each, and what the loop says to each result."""

    effect: Effect
    """What the loop asks for now: the calls that have not ended, or what comes after them."""

    def __init__(self, driver: _Driver, effect: CallTools, loop: Generator[Effect, Any, Any]) -> None:
        self._driver = driver
        self._nesting = driver.nesting
        self._started: set[str] = set()
        self._is_heard = True
        self._calling = effect
        self._event_loop = asyncio.get_running_loop()
        self._telling: asyncio.Task[None] | None = None
        self.effect = effect
        self.loop = loop

    @property
    def step(self) -> int:
        """The step of the run."""
        return self._calling.step

    @property
    def usage(self) -> Usage:
        """What the run used so far."""
        return self._calling.usage

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages until here, the one with the calls last."""
        return tuple([message for piece in self._calling.messages for message in piece])

    def report(self, call_id: str, message: str, done: float | None, total: float | None) -> None:
        """Tell who listens how far a call is, from any thread; a call that has ended is not heard any more."""
        if self._nesting.emit is None:
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
        emit = self._nesting.emit
        waiting = self.effect.calls if isinstance(self.effect, CallTools) else ()
        call = next((call for call in waiting if call.id == call_id), None)
        if emit is None or call is None or not self._is_heard:
            return
        with suppress(BaseException):  # a listener failed: the next event that the run itself has ends it
            taken = emit(events.ToolProgress(self.step, call, message, done, total))
            if taken is not None and (self._telling is None or self._telling.done()):
                self._telling = self._event_loop.create_task(_await(taken))

    async def allowed(self) -> tuple[ToolCall, ...]:
        """Return the calls that may run, as they were approved; the others end here."""
        calls, decisions = self._calling.calls, self._calling.decisions
        found: list[ToolCall] = []
        for call in calls:
            made = decisions.get(call.id)
            if isinstance(made, Denied):
                reason = f"it was denied: {clean(made.reason)}" if made.reason else "it was denied."
                denied = ToolResult(call.id, call.name, f"{call.name} was not called: {reason}", "denied")
                if (taken := self.on_end(denied)) is not None:
                    await taken
            elif made is not None and made.arguments is not None:
                found.append(replace(call, arguments=json.dumps(dict(made.arguments))))
            else:
                found.append(call)
        return tuple(found)

    def context(self, call: ToolCall) -> ToolContext[Any]:
        driver = self._driver
        approved = isinstance(self._calling.decisions.get(call.id), Approved)
        return ToolContext(driver.deps, driver.run_id, call.id, approved=approved, calls=driver.calls, run=self)

    def on_start(self, call: ToolCall) -> Awaitable[None] | None:
        if self._nesting.stopped and self._is_behind(call):
            raise CallWaits
        if self._nesting.keeper is not None:
            self._nesting.keeper.check()  # the calls before it may have taken hours
        self._started.add(call.id)
        emit = self._nesting.emit
        return None if emit is None else emit(events.ToolStarted(self._calling.step, call))

    def on_end(self, result: ToolResult) -> Awaitable[None] | None:
        nesting, calling = self._nesting, self._calling
        if nesting.unfinished and result.call_id in nesting.unfinished and result.status in ("success", "error"):
            nesting.stopped[result.call_id] = JournalError(_changed(result), name=result.call_id)
        if result.error is not None:
            self._failed(result, result.error)
        if not self._is_heard or result.call_id in nesting.stopped:
            return None  # the loop has ended: what was answered could not be written down; or it is no answer
        self._is_heard = False
        self.effect = effect = self.loop.send((result, nesting.inner_usage(calling.calls, result.call_id)))
        self._is_heard = True
        if isinstance(effect, CallTools):
            self._calling = effect
            if nesting.keeper is not None:
                nesting.keeper.begin()  # other calls may take hours
        return None if (emit := nesting.emit) is None else emit(events.ToolFinished(calling.step, result))

    def _failed(self, result: ToolResult, error: BaseException) -> None:
        """Stop the run where an agent in the tool paused; say in the log what failed."""
        stopped = self._nesting.stopped
        if (paused := inner_pause(error)) is not None:
            stopped.setdefault(result.call_id, paused)
        if self._is_heard and result.call_id not in stopped and _log.isEnabledFor(logging.WARNING):
            trace = clean("".join(traceback.format_exception(error)))  # a handler has to encode it
            _log.warning("run %s: the tool %s failed (%s)\n%s", self._driver.run_id, result.name, result.call_id, trace)

    def _is_behind(self, call: ToolCall) -> bool:
        """Whether a call waits for one before it that has stopped: one of them is sequential, or one between them."""
        has_stopped = is_behind = False
        for other in self._nesting.calls:
            tool = self._driver.tools.get(other.name)
            is_sequential = tool is not None and tool.policy.sequential
            is_behind = is_behind or (is_sequential and has_stopped)
            if other.id == call.id:
                return is_behind
            if other.id in self._nesting.stopped:
                has_stopped, is_behind = True, is_behind or is_sequential
        return False

    def cut_short(self) -> Effect:
        """Tell the loop how the calls that did not end were cut short, and return what it asks for then."""
        while self._is_heard and isinstance(self.effect, CallTools):
            call = self.effect.calls[0]
            text = f"{call.name} was not called: the run was cancelled first."
            if call.id in self._started:
                text = f"{call.name} was cancelled with the run. It may still have had an effect."
            cancelled = ToolResult(call.id, call.name, text, "cancelled")
            self.effect = self.loop.send((cancelled, self._nesting.inner_usage(self.effect.calls, call.id)))
        return self.effect


class CallWaits(Exception):
    """A call must not begin: one before it has stopped."""


async def _await(taken: Awaitable[None]) -> None:
    with suppress(BaseException):
        await taken


def what_stopped(calls: Sequence[ToolCall], stopped: Mapping[str, Exception]) -> Exception:
    """Return what stops a run whose tools are agents that were stopped."""
    waiting: list[ToolCall] = []
    agents: dict[str, str] = {}
    for call in calls:
        error = stopped.get(call.id)
        if isinstance(error, Paused):
            for inner in error.calls:
                own = inner_id(call.id, inner.id)
                waiting.append(replace(inner, id=own))
                agents[own] = f"{call.name}/{error.agents[inner.id]}" if inner.id in error.agents else call.name
        elif isinstance(error, AgentError):
            named_error = copy(error).with_traceback(error.__traceback__)
            named_error.args = (f"{named(call)}: {error}",)
            named_error.path = named_error.path or named(call)
            named_error.__cause__ = error.__cause__
            return named_error
        elif error is not None:
            return error
    return Paused(waiting, agents)


def _changed(result: ToolResult) -> str:
    return (
        f"its agent did not go on from its journal: the tool is gone or has changed since ({result.message.text:.200})"
    )


def named(call: ToolCall) -> str:
    """Return how errors name a call."""
    return f"{call.name} ({call.id})"
