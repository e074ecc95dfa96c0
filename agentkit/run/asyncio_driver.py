"""The asyncio driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from agentkit.models.model import Model, Reply, Usage
from agentkit.recaller import Found, Recaller, recall
from agentkit.run import events
from agentkit.run.effects import Append, AskApproval, CallModel, CallTools, Effect, Recall
from agentkit.run.loop import Interrupted
from agentkit.run.nested_runs import Nesting
from agentkit.session import Session
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.dispatch import call_tools
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

__all__ = ["AsyncDriver"]

R = TypeVar("R")


@dataclass(slots=True, kw_only=True)
class AsyncDriver:
    """Performs the effects of one run on the running event loop."""

    model: Model
    tools: Mapping[str, Tool]
    """The tools of the run by name."""
    session: Session | None
    memory: Recaller | None
    deps: Any
    run_id: str
    nesting: Nesting
    kept: list[Message] = field(default_factory=list)
    """What the run added to the conversation so far."""
    calls: dict[str, int] = field(default_factory=dict)
    """How many calls of each tool there were."""

    async def drive(self, loop: Generator[Effect, Any, R]) -> R:
        """Perform effects until the loop returns."""
        answer: Any = None
        try:
            while True:
                effect = loop.send(answer)
                if isinstance(effect, CallModel):
                    answer = await self._call_model(effect)
                elif isinstance(effect, CallTools):
                    answer = await self._call_tools(effect, loop)
                elif isinstance(effect, Append):
                    await self._append(effect)
                    answer = None
                elif isinstance(effect, AskApproval):
                    answer = await self._ask(effect)
                else:
                    answer = await self._recall(effect)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            loop.close()

    async def _call_model(self, effect: CallModel) -> Reply:
        emit = self.nesting.emit
        if emit is None:
            reply = await self.model.request(effect.composition)
            self.nesting.spend(reply.usage)
            return reply
        step = effect.step
        emit(events.PromptComposed(step, effect.composition))
        reply = await self.model.request(effect.composition, on_text=lambda text: emit(events.TextDelta(step, text)))
        self.nesting.spend(reply.usage)
        emit(events.ModelReplied(step, reply))
        return reply

    async def _call_tools(
        self, effect: CallTools, loop: Generator[Effect, Any, Any]
    ) -> tuple[Sequence[ToolResult], Usage | None]:
        calls, heard = effect.calls, _Round(self, effect)
        try:
            results = await call_tools(calls, self.tools, heard.context, on_start=heard.on_start, on_end=heard.on_end)
        except (Exception, asyncio.CancelledError) as error:  # cancelled, or a listener failed
            await self._keep([heard.result(call) for call in calls], loop, error)
            raise
        return results, self.nesting.inner_usage()

    async def _keep(self, results: list[ToolResult], loop: Generator[Effect, Any, Any], error: BaseException) -> None:
        """Keep a round of tool calls that was cut short: some of them may have changed the world."""
        try:
            last = loop.throw(Interrupted(results))
            assert isinstance(last, Append)
            await self._append(last)
            with suppress(Interrupted):
                loop.send(None)
        except Exception as failure:
            error.add_note(f"The results of the tool calls could not be kept: {type(failure).__name__}: {failure}")

    async def _append(self, effect: Append) -> None:
        session = self.session
        if session is not None and not session.append_now(*effect.messages, key=effect.key):
            append = partial(session.append, *effect.messages, key=effect.key)
            writing = asyncio.get_running_loop().run_in_executor(None, append)
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:  # nobody may use the session before the write has ended
                await asyncio.wait([writing])
                raise
        self.kept += effect.messages

    async def _recall(self, effect: Recall) -> Found:
        assert self.memory is not None
        found = await asyncio.to_thread(recall, self.memory, effect.query, self.session, effect.visible)
        if self.nesting.emit is not None:
            self.nesting.emit(events.Recalled(effect.query, *found))
        return found

    async def _ask(self, effect: AskApproval) -> frozenset[str]:
        approve = self.nesting.approve
        approved: set[str] = set()
        for call in effect.calls:
            context = ToolContext(self.deps, self.run_id, call.id)
            if approve is not None and await self.tools[call.name].needs_approval(call, context):
                answer = approve(call)
                if (await answer) if isinstance(answer, Awaitable) else answer:
                    approved.add(call.id)
        return frozenset(approved)


class _Round:
    """The calls of one reply: the context of each, the events of each, and how each has ended so far."""

    __slots__ = ("_driver", "_effect", "_ended", "_nesting")

    def __init__(self, driver: AsyncDriver, effect: CallTools) -> None:
        self._driver = driver
        self._nesting = driver.nesting
        self._effect = effect
        self._ended: dict[str, ToolResult | None] = {}

    def context(self, call: ToolCall) -> ToolContext[Any]:
        driver = self._driver
        approved = call.id in self._effect.approved
        return ToolContext(driver.deps, driver.run_id, call.id, approved=approved, calls=driver.calls)

    def on_start(self, call: ToolCall) -> None:
        self._ended[call.id] = None
        if (emit := self._nesting.emit) is not None:
            emit(events.ToolStarted(self._effect.step, call))

    def on_end(self, result: ToolResult) -> None:
        self._ended[result.call_id] = result
        if (emit := self._nesting.emit) is not None:
            emit(events.ToolFinished(self._effect.step, result))

    def result(self, call: ToolCall) -> ToolResult:
        """Return how a call ended when the round was cut short."""
        if call.id not in self._ended:
            text = f"{call.name} was not called: the run was cancelled first."
        elif (result := self._ended[call.id]) is not None:
            return result
        else:
            text = f"{call.name} was cancelled with the run. It may still have had an effect."
        return ToolResult(call.id, call.name, text, "cancelled")
