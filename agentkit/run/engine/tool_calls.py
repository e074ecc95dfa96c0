"""`ToolCalls`: the tool calls of one reply while they run, with their contexts, events and results."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentkit.errors import AgentError, JournalError, Paused
from agentkit.models.model import Usage
from agentkit.run.engine import events
from agentkit.run.engine.steps import OnResult, ToolRound
from agentkit.run.journal.journal import inner_id
from agentkit.run.parts.decisions import Approved, Denied, inner_pause
from agentkit.run.parts.run_scope import OuterRun
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.wire.clean import clean
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import describe_error, traceback_text
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit.run.engine.current_run import CurrentRun
    from agentkit.run.engine.run_setup import RunSetup
    from agentkit_memory import Scope
    from agentkit_prompts.composition.untrusted_sources import UntrustedSource
    from agentkit_tools.tool import Tool

_log = logging.getLogger("agentkit")


class ToolCalls:
    """The calls of one round, and the `RunState` of their tools.

    Args:
        setup: The run.
        run: State of the run, shared with inner runs.
        tools: The tools by name.
        counts: Number of calls of each tool so far; see `ToolContext.calls`.
        round_: The calls.
        on_result: Receives each result.
    """

    def __init__(
        self,
        setup: RunSetup[Any],
        run: CurrentRun,
        tools: Mapping[str, Tool],
        counts: dict[str, int],
        round_: ToolRound,
        on_result: OnResult,
    ) -> None:
        self._setup = setup
        self._run_id = setup.journal.run_id
        self._run = run
        self._tools = tools
        self._counts = counts
        self._round = round_
        self._on_result = on_result
        self._pending = {call.id: call for call in round_.calls}  # calls without a result
        self._started: set[str] = set()
        self._is_broken = False  # a result could not be stored: no other result can follow
        self._event_loop = asyncio.get_running_loop()
        self._delivery: asyncio.Task[None] | None = None

    # The state of the run, for tools

    @property
    def as_outer(self) -> OuterRun:
        """The parts of the run for an agent that is a tool of the run."""
        setup = self._setup
        return OuterRun(
            self.scope,
            setup.memory,
            setup.journal.context.locale,
            setup.permissions,
            self,
            guards=setup.definition.guards,
        )

    @property
    def scope(self) -> Scope:
        """Scope of the run."""
        if self._setup.scope is None:
            from agentkit_memory import Scope

            return Scope()
        return self._setup.scope

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
        """The messages of the conversation; the last message contains the calls of this round."""
        return tuple([message for piece in self._round.messages for message in piece])

    @property
    def untrusted(self) -> tuple[UntrustedSource, ...]:
        """The sources of untrusted text in the prompt of this step, and in the prompts of outer runs."""
        sources: tuple[UntrustedSource, ...] = ()
        if self._round.composition is not None:
            sources = self._round.composition.untrusted
        if self._setup.outer is not None:
            sources = tuple(dict.fromkeys([*sources, *self._setup.outer.untrusted]))
        return sources

    @property
    def loaded_skills(self) -> tuple[str, ...]:
        """Names of the skills whose instructions are in the prompt of this step."""
        if self._round.composition is None:
            return ()
        return tuple([skill.name for skill in self._round.composition.context.loaded_skills])

    async def decide(self, call_id: str, form: ToolCall, *, can_repeat: bool) -> Mapping[str, Any] | None:
        """Return the arguments with which a person approved a form of a running call; None if it was denied."""
        from agentkit.run.engine.form_decisions import decide_form

        return await decide_form(self._run, self._setup.journal, self.step, call_id, form, can_repeat=can_repeat)

    def report(self, call_id: str, message: str, done: float | None, total: float | None) -> None:
        """Emit progress of a running call, from any thread; ignored after the end of the call."""
        if self._run.sink is None:
            return
        try:
            is_here = asyncio.get_running_loop() is self._event_loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._report(call_id, message, done, total)
        else:
            with suppress(RuntimeError):  # the event loop is closed: the run has finished
                self._event_loop.call_soon_threadsafe(self._report, call_id, message, done, total)

    def _report(self, call_id: str, message: str, done: float | None, total: float | None) -> None:
        sink, call = self._run.sink, self._pending.get(call_id)
        if sink is None or call is None or self._is_broken:
            return
        with suppress(BaseException):  # an error of the listener is raised again by the next event of the run
            sink.queue(events.ToolProgress(self.step, call, message, done, total))
            if sink.has_waiting and (self._delivery is None or self._delivery.done()):
                self._delivery = self._event_loop.create_task(_await(sink))

    # The calls

    async def allowed(self) -> tuple[ToolCall, ...]:
        """Return the approved calls, with their approved arguments; denied calls get their result here."""
        allowed: list[ToolCall] = []
        for call in self._round.calls:
            decision = self._round.decisions.get(call.id)
            if isinstance(decision, Denied):
                reason = "it was denied."
                if decision.reason:
                    reason = f"it was denied: {clean(decision.reason)}"
                denied = ToolResult(call.id, call.name, f"{call.name} was not called: {reason}", "denied")
                delivery = self.on_end(denied)
                if delivery is not None:
                    await delivery
            elif decision is not None and decision.arguments is not None:
                allowed.append(replace(call, arguments=json.dumps(dict(decision.arguments))))
            else:
                allowed.append(call)
        return tuple(allowed)

    def context(self, call: ToolCall) -> ToolContext[Any]:
        approved = isinstance(self._round.decisions.get(call.id), Approved)
        return self._setup.tool_context(call.id, approved=approved, calls=self._counts, run=self)

    def on_start(self, call: ToolCall) -> Awaitable[None] | None:
        run = self._run
        # A call after a sequential call can depend on its effect, and a stopped call has had no effect yet.
        if run.stopped and self._must_wait(call):
            raise CallMustWait
        if run.writer is not None:
            run.writer.check()  # earlier calls can have taken hours
        self._started.add(call.id)
        if run.sink is None:
            return None
        run.sink.queue(events.ToolStarted(self.step, call))
        return run.sink.delivery

    def on_end(self, result: ToolResult) -> Awaitable[None] | None:
        run = self._run
        if run.unfinished and result.call_id in run.unfinished and result.status in ("success", "error"):
            run.stop(result.call_id, JournalError(_change_problem(result), name=result.call_id))
        if result.error is not None or result.has_failed:
            self._handle_error(result)
        # No result: a stopped agent is resumed together with this run, and a cancelled call has a result already.
        if self._is_broken or result.call_id in run.stopped or result.call_id not in self._pending:
            return None
        self._finish(result)
        if run.writer is not None and self._pending:
            run.writer.begin()  # other calls can take hours
        if run.sink is None:
            return None
        run.sink.queue(events.ToolFinished(self.step, result))
        return run.sink.delivery

    def _finish(self, result: ToolResult) -> None:
        """Deliver a result, with the usage of inner runs of the call."""
        usage = self._run.spending.inner_usage(self._pending.values(), result.call_id)
        # Set until the result is stored: after an error, no other result of the round is stored.
        self._is_broken = True
        self._on_result(result, usage)
        self._is_broken = False
        del self._pending[result.call_id]

    def _handle_error(self, result: ToolResult) -> None:
        """Stop the run if an agent in the tool paused; log other errors."""
        error = result.error
        paused = None if error is None else inner_pause(error)
        if paused is not None:
            self._run.stop(result.call_id, paused)
        if self._is_broken or result.call_id in self._run.stopped or not _log.isEnabledFor(logging.WARNING):
            return
        details = summary = result.message.text
        if error is not None:
            details, summary = traceback_text(error), describe_error(error)
        # Commands of a terminal print the summary instead of the traceback, or the event of the call.
        extra = {
            "summary": f"tool {result.name} failed ({result.call_id}): {clean(summary)}",
            "has_event": self._setup.outer is None and result.call_id in self._pending,
        }
        values = self._run_id, result.name, result.call_id, clean(details)
        _log.warning("run %s: the tool %s failed (%s)\n%s", *values, extra=extra)

    def _must_wait(self, call: ToolCall) -> bool:
        """True if a stopped call precedes `call`, and one of the two calls, or a call between them, is sequential."""
        has_stopped = must_wait = False
        for other in self._round.calls:
            tool = self._tools.get(other.name)
            is_sequential = tool is not None and tool.policy.sequential
            must_wait = must_wait or (is_sequential and has_stopped)
            if other.id == call.id:
                return must_wait
            if other.id in self._run.stopped:
                has_stopped, must_wait = True, must_wait or is_sequential
        return False

    def cancel(self) -> None:
        """Finish each pending call with a result for the model: the call did not start, or may have had an effect."""
        reason = ""
        if self._setup.inbox is not None and self._setup.inbox.reason:
            reason = f" Reason: {clean(self._setup.inbox.reason)}"
        for call in [*self._pending.values()]:
            if self._is_broken:
                return
            text = f"{call.name} was not called: the run was cancelled first."
            if call.id in self._started:
                text = f"{call.name} was cancelled with the run. It may still have had an effect."
            text += reason
            # Without a result for each call, a provider refuses the conversation.
            self._finish(ToolResult(call.id, call.name, text, "cancelled"))


class CallMustWait(Exception):
    """A call must not start, because an earlier call stopped."""


async def _await(delivery: Awaitable[None]) -> None:
    with suppress(BaseException):
        await delivery


def stop_error(calls: Sequence[ToolCall], stopped: Mapping[str, Exception]) -> Exception:
    """Return the error of a run whose agents as tools stopped."""
    waiting: list[ToolCall] = []
    agents: dict[str, str] = {}
    # In the order of the calls instead of the errors, so that the same run always ends with the same error.
    for call in calls:
        error = stopped.get(call.id)
        if isinstance(error, Paused):
            for inner in error.calls:
                path = inner_id(call.id, inner.id)
                waiting.append(replace(inner, id=path))
                agents[path] = call.name
                if inner.id in error.agents:
                    agents[path] = f"{call.name}/{error.agents[inner.id]}"
        elif isinstance(error, AgentError):
            # A copy: the inner run reported the same error object, and its text must stay.
            named_error = copy(error).with_traceback(error.__traceback__)
            named_error.args = (f"{call_name(call)}: {error}",)
            named_error.path = named_error.path or call_name(call)
            named_error.__cause__ = error.__cause__
            return named_error
        elif error is not None:
            return error
    return Paused(waiting, agents)


def _change_problem(result: ToolResult) -> str:
    return f"its agent did not resume its journal: the tool is missing or has changed ({result.message.text:.200})"


def call_name(call: ToolCall) -> str:
    """Return the name of a call in errors."""
    return f"{call.name} ({call.id})"
