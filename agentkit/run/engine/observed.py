"""`ObservedSteps`: the steps of a run with an observer of each operation that takes time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from agentkit.models.model import Model, Reply
from agentkit.run.engine.current_run import CurrentRun
from agentkit.run.engine.loop import RunResult
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.run_steps import RunSteps
from agentkit.run.engine.steps import Ended, ToolRound
from agentkit.run.engine.tool_calls import ToolCalls
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.recaller import Found
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

__all__ = ["ObservedSteps", "Observer", "ToolEnded", "observed_by", "observer"]

ToolEnded = Callable[[ToolResult | None], None]


class Observer(Protocol):
    """Observes runs. Each block is around one operation, and receives its result."""

    def run(self, journal: Journal) -> AbstractContextManager[Callable[[RunResult[Any]], None]]: ...
    def model_call(
        self, model: Model, composition: Composition, *, session: str | None, is_streamed: bool
    ) -> AbstractContextManager[Callable[[Reply], None]]: ...
    def recall(self, query: str) -> AbstractContextManager[Callable[[Found], None]]: ...
    def tool_began(self, call: ToolCall, tool: Tool | None) -> ToolEnded:
        """Begin to observe a call, in the context of its task; return a function that takes its result there.

        If the run was cut short before the result, the function receives None, in any context.
        """
        ...


_observer: Observer | None = None


def observer() -> Observer | None:
    """Return the observer of the runs of this process."""
    return _observer


def observed_by(one: Observer | None) -> None:
    """Set the observer of the runs of this process that begin from now on."""
    global _observer
    _observer = one


class ObservedSteps(RunSteps):
    """Performs the steps of a run, observed.

    It is a subclass and no wrapper: compaction calls a model too, and the span of a tool call begins and ends in the
    task of the call.
    """

    __slots__ = ("_began", "_by")

    def __init__(self, setup: RunSetup[Any], run: CurrentRun, by: Observer) -> None:
        super().__init__(setup, run)
        self._by = by
        self._began: dict[str, ToolEnded] = {}  # by the ids of the calls without a result

    async def send(self, model: Model, composition: Composition, step: int | None = None) -> Reply:
        session = None if self._setup.session is None else self._setup.session.id
        is_streamed = self._run.listening is not None and step is not None
        with self._by.model_call(model, composition, session=session, is_streamed=is_streamed) as ended:
            reply = await super().send(model, composition, step)
            ended(reply)
            return reply

    async def recall(self, query: str, visible: int | None) -> Found:
        with self._by.recall(query) as ended:
            found = await super().recall(query, visible)
            ended(found)
            return found

    async def call_tools(self, round_: ToolRound, ended: Ended) -> None:
        try:
            await super().call_tools(round_, ended)
        finally:
            # Calls without a result were cut short: their spans end here.
            while self._began:
                self._began.popitem()[1](None)

    def _tool_calls(self, round_: ToolRound, ended: Ended) -> ToolCalls:
        calls = _ObservedCalls(self._setup, self._run, self._tools, self._calls, round_, ended)
        calls.observe(self._by, self._began)
        return calls


class _ObservedCalls(ToolCalls):
    """The tool calls of one round, each observed in its task."""

    _by: Observer
    _began: dict[str, ToolEnded]

    def observe(self, by: Observer, began: dict[str, ToolEnded]) -> None:
        """Set the observer, and the dict of the calls that it observes."""
        self._by = by
        self._began = began

    def on_start(self, call: ToolCall) -> Awaitable[None] | None:
        taken = super().on_start(call)
        self._began[call.id] = self._by.tool_began(call, self._tools.get(call.name))
        return taken

    def on_end(self, result: ToolResult) -> Awaitable[None] | None:
        ended = self._began.pop(result.call_id, None)
        if ended is not None:
            ended(result)
        return super().on_end(result)
