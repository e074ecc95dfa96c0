"""The asyncio driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from agentkit.effects import Append, AskApproval, CallModel, CallTools, Effect, Recall
from agentkit.loop import Interrupted
from agentkit.models.model import Model, Reply, Usage
from agentkit.nesting import Approver, Nesting
from agentkit.recaller import Found, Recaller, recall
from agentkit.session import Session
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.dispatch import call_tools
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

__all__ = ["Approver", "AsyncDriver"]

R = TypeVar("R")


class AsyncDriver:
    """Performs the effects of one run on the running event loop."""

    __slots__ = ("_memory", "_model", "_nesting", "_session", "calls", "deps", "emit", "kept", "run_id", "tools")

    tools: Mapping[str, Tool]
    """The tools of the run by name."""
    kept: list[Message]
    """What the run added to the conversation so far."""

    def __init__(
        self,
        *,
        model: Model,
        tools: Mapping[str, Tool],
        session: Session | None,
        memory: Recaller | None,
        deps: Any,
        run_id: str,
        nesting: Nesting,
    ) -> None:
        self._model = model
        self.tools = tools
        self._session = session
        self._memory = memory
        self.deps = deps
        self.run_id = run_id
        self.emit = nesting.emit
        self._nesting = nesting
        self.calls: dict[str, int] = {}
        self.kept = []

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
        emit = self.emit
        if emit is None:
            reply = await self._model.request(effect.composition)
            self._nesting.spend(reply.usage)
            return reply
        from agentkit import events  # nobody pays for events before somebody listens

        step = effect.step
        emit(events.PromptComposed(step, effect.composition))
        reply = await self._model.request(effect.composition, on_text=lambda text: emit(events.TextDelta(step, text)))
        self._nesting.spend(reply.usage)
        emit(events.ModelReplied(step, reply))
        return reply

    async def _call_tools(
        self, effect: CallTools, loop: Generator[Effect, Any, Any]
    ) -> tuple[Sequence[ToolResult], Usage | None]:
        calls, told = effect.calls, _Round(self, effect)
        try:
            results = await call_tools(calls, self.tools, told.context, on_start=told.on_start, on_end=told.on_end)
        except (Exception, asyncio.CancelledError) as error:  # cancelled, or a listener failed
            await self._keep([told.result(call) for call in calls], loop, error)
            raise
        return results, self._nesting.inner_usage()

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
        session = self._session
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
        assert self._memory is not None
        found = await asyncio.to_thread(recall, self._memory, effect.query, self._session, effect.visible)
        if self.emit is not None:
            from agentkit import events

            self.emit(events.Recalled(effect.query, *found))
        return found

    async def _ask(self, effect: AskApproval) -> frozenset[str]:
        approve = self._nesting.approve
        approved: set[str] = set()
        for call in effect.calls:
            context = ToolContext(self.deps, self.run_id, call.id)
            if approve is not None and await self.tools[call.name].needs_approval(call, context):
                answer = approve(call)
                if (await answer) if isinstance(answer, Awaitable) else answer:
                    approved.add(call.id)
        return frozenset(approved)


class _Round:
    """The calls of one reply: what each is told of the run, and how each has ended so far."""

    __slots__ = ("_approved", "_driver", "_ended", "_step")

    def __init__(self, driver: AsyncDriver, effect: CallTools) -> None:
        self._driver = driver
        self._step = effect.step
        self._approved = effect.approved
        self._ended: dict[str, ToolResult | None] = {}

    def context(self, call: ToolCall) -> ToolContext[Any]:
        driver = self._driver
        approved = call.id in self._approved
        return ToolContext(driver.deps, driver.run_id, call.id, approved=approved, calls=driver.calls)

    def on_start(self, call: ToolCall) -> None:
        self._ended[call.id] = None
        if (emit := self._driver.emit) is not None:
            from agentkit import events

            emit(events.ToolStarted(self._step, call))

    def on_end(self, result: ToolResult) -> None:
        self._ended[result.call_id] = result
        if (emit := self._driver.emit) is not None:
            from agentkit import events

            emit(events.ToolFinished(self._step, result))

    def result(self, call: ToolCall) -> ToolResult:
        """Return how a call ended when the round was cut short."""
        if call.id not in self._ended:
            text = f"{call.name} was not called: the run was cancelled first."
        elif (result := self._ended[call.id]) is not None:
            return result
        else:
            text = f"{call.name} was cancelled with the run. It may still have had an effect."
        return ToolResult(call.id, call.name, text, "cancelled")
