"""`ObservedDriver`: the asyncio driver with somebody who observes each effect that takes time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from agentkit.models.model import Model, Reply
from agentkit.run.engine.asyncio_driver import AsyncDriver
from agentkit.run.engine.effects import CallTools, Effect, Recall
from agentkit.run.engine.loop import RunResult
from agentkit.run.engine.tool_round import ToolRound
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.recaller import Found
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

__all__ = ["ObservedDriver", "Observer", "observed", "observed_by", "observer"]

T = TypeVar("T")
ToolEnded = Callable[[ToolResult | None], None]


class Observer(Protocol):
    """Observes runs. Each block is around one operation, and is given what it was answered."""

    def run(self, journal: Journal) -> AbstractContextManager[Callable[[RunResult[Any]], None]]: ...
    def model_call(
        self, model: Model, composition: Composition, *, session: str | None, is_streamed: bool
    ) -> AbstractContextManager[Callable[[Reply], None]]: ...
    def recall(self, query: str) -> AbstractContextManager[Callable[[Found], None]]: ...
    def tool_began(self, call: ToolCall, tool: Tool | None) -> ToolEnded:
        """Is called in the context of a call when it begins; returns what is called there with its result.

        It is called with None, wherever, where the run was cut short first.
        """
        ...


_observer: Observer | None = None


def observer() -> Observer | None:
    """Return who observes the runs of this process."""
    return _observer


def observed_by(one: Observer | None) -> None:
    """Have the runs of this process that begin from now on observed, or not."""
    global _observer
    _observer = one


async def observed(by: Observer, journal: Journal, run: Coroutine[Any, Any, RunResult[T]]) -> RunResult[T]:
    """Return what a run returns, observed."""
    journal.has_layers = True
    try:
        with by.run(journal) as ended:
            result = await run
            ended(result)
            return result
    finally:
        run.close()


@dataclass(slots=True)
class ObservedDriver(AsyncDriver):
    """Performs the effects of one run, observed."""

    by: Observer = field(kw_only=True)
    began: dict[str, ToolEnded] = field(default_factory=dict)
    """What ends the tool calls that are under way, by their ids."""

    async def _request(self, model: Model, composition: Composition, step: int | None) -> Reply:
        session = None if self.session is None else self.session.id
        is_streamed = self.nesting.emit is not None and step is not None
        with self.by.model_call(model, composition, session=session, is_streamed=is_streamed) as ended:
            reply = await AsyncDriver._request(self, model, composition, step)
            ended(reply)
            return reply

    async def _recall(self, effect: Recall) -> Found:
        with self.by.recall(effect.query) as ended:
            found = await AsyncDriver._recall(self, effect)
            ended(found)
            return found

    async def _call_tools(self, effect: CallTools, loop: Generator[Effect, Any, Any]) -> Effect:
        try:
            return await AsyncDriver._call_tools(self, effect, loop)
        finally:
            while self.began:
                self.began.popitem()[1](None)

    def _round(self, effect: CallTools, loop: Generator[Effect, Any, Any]) -> ToolRound:
        return _ObservedRound(self, effect, loop)


class _ObservedRound(ToolRound):
    """A round of tool calls, each observed in its own context."""

    _driver: ObservedDriver

    def on_start(self, call: ToolCall) -> Awaitable[None] | None:
        taken = super().on_start(call)
        self._driver.began[call.id] = self._driver.by.tool_began(call, self._driver.tools.get(call.name))
        return taken

    def on_end(self, result: ToolResult) -> Awaitable[None] | None:
        if (ended := self._driver.began.pop(result.call_id, None)) is not None:
            ended(result)
        return super().on_end(result)
