"""`ObservedSteps`: steps of a run with an observer of model calls, recalls and tool calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from agentkit.models.model import Delta, Model, OnDelta, Reply
from agentkit.run.engine.current_run import CurrentRun
from agentkit.run.engine.event_sink import DeltaSink
from agentkit.run.engine.run_result import RunResult
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.run_steps import RunSteps
from agentkit.run.engine.steps import OnResult, ToolRound
from agentkit.run.engine.tool_calls import ToolCalls
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.recaller import RecallResult
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

OnToolEnd = Callable[[ToolResult | None], None]


class ObservedModelCall(Protocol):
    """Receiver of the events of one model call."""

    def chunk(self) -> None:
        """Receive the arrival of a piece of a streamed reply."""
        ...

    def ended(self, reply: Reply) -> None:
        """Receive the reply."""
        ...


class Observer(Protocol):
    """Observer of runs. Each context manager encloses one operation, and yields a receiver of its result."""

    def run(self, journal: Journal, model: Model) -> AbstractContextManager[Callable[[RunResult[Any]], None]]: ...
    def model_call(
        self, model: Model, composition: Composition, *, session: str | None, is_streamed: bool
    ) -> AbstractContextManager[ObservedModelCall]: ...
    def recall(self, query: str) -> AbstractContextManager[Callable[[RecallResult], None]]: ...
    def tool_started(self, call: ToolCall, tool: Tool | None) -> OnToolEnd:
        """Start to observe a call; return a function that receives the result. Both are called in the task of the call.

        If the run was cancelled before the result, the function receives None, in any task.
        """
        ...


_observer: Observer | None = None


def current_observer() -> Observer | None:
    """Return the observer of the runs of this process; None if the runs are not observed."""
    return _observer


def set_observer(observer: Observer | None) -> None:
    """Set the observer of the runs that start later in this process; None: observe no runs."""
    global _observer
    _observer = observer


class ObservedSteps(RunSteps):
    """Performs and observes the steps of a run.

    A subclass instead of a wrapper, because two operations are not steps: the model call of a compaction, and the start
    of a tool call in its task.
    """

    __slots__ = ("_model_call", "_observer", "_started")

    def __init__(self, setup: RunSetup[Any], run: CurrentRun, observer: Observer) -> None:
        super().__init__(setup, run)
        self._observer = observer
        self._model_call: ObservedModelCall | None = None
        """The present model call: a run performs its model calls one after the other."""
        self._started: dict[str, OnToolEnd] = {}  # by the ids of calls without a result

    async def send(self, model: Model, composition: Composition, step: int | None = None) -> Reply:
        session = None
        if self._setup.session is not None:
            session = self._setup.session.id or None
        is_streamed = self._run.sink is not None and step is not None
        with self._observer.model_call(model, composition, session=session, is_streamed=is_streamed) as call:
            self._model_call = call
            reply = await super().send(model, composition, step)
            call.ended(reply)
            return reply

    def _listener(self, deltas: DeltaSink) -> OnDelta:
        call = self._model_call

        def receive(delta: Delta) -> Awaitable[None] | None:
            # A delta of this kind announces another model, before any piece of a reply.
            if call is not None and delta.kind != "fallback":
                call.chunk()
            return deltas(delta)

        return receive

    async def recall(self, query: str, visible: int | None) -> RecallResult:
        with self._observer.recall(query) as on_recalled:
            recalled = await super().recall(query, visible)
            on_recalled(recalled)
            return recalled

    async def call_tools(self, round_: ToolRound, on_result: OnResult) -> None:
        try:
            await super().call_tools(round_, on_result)
        finally:
            # Calls without a result were cancelled: their spans end here.
            while self._started:
                self._started.popitem()[1](None)

    def _tool_calls(self, round_: ToolRound, on_result: OnResult) -> ToolCalls:
        calls = _ObservedCalls(self._setup, self._run, self._tools, self._calls, round_, on_result)
        calls.observe(self._observer, self._started)
        return calls


class _ObservedCalls(ToolCalls):
    """The tool calls of one round, each observed in its task."""

    _observer: Observer
    _observed: dict[str, OnToolEnd]

    def observe(self, observer: Observer, observed: dict[str, OnToolEnd]) -> None:
        """Set the observer, and the dictionary of observed calls."""
        self._observer = observer
        self._observed = observed

    def on_start(self, call: ToolCall) -> Awaitable[None] | None:
        delivery = super().on_start(call)
        self._observed[call.id] = self._observer.tool_started(call, self._tools.get(call.name))
        return delivery

    def on_end(self, result: ToolResult) -> Awaitable[None] | None:
        on_tool_end = self._observed.pop(result.call_id, None)
        if on_tool_end is not None:
            on_tool_end(result)
        return super().on_end(result)
