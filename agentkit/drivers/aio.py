"""The asyncio driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from agentkit_prompts.context import Document
from agentkit_prompts.messages import ToolCall
from agentkit_tools.context import ToolContext
from agentkit_tools import unknown_tool
from agentkit_tools.result import ToolResult
from agentkit_tools.tool import Tool

from agentkit.effects import Append, AskApproval, CallModel, CallTools, Effect, Recall
from agentkit.events import Event, ModelReplied, PromptComposed, Recalled, TextDelta, ToolFinished, ToolStarted
from agentkit.loop import Interrupted
from agentkit.models.base import Model
from agentkit.session import Session

__all__ = ["Approver", "AsyncDriver", "Recaller"]

R = TypeVar("R")
Approver = Callable[[ToolCall], bool | Awaitable[bool]]
"""Decides whether one call may run."""


class Recaller(Protocol):
    """Finds passages for a query. Called in a thread."""

    def recall(self, query: str) -> Sequence[Document]:
        """Return passages, best first, with ids and scores."""
        ...


class AsyncDriver:
    """Performs the effects of one run on the running event loop."""

    __slots__ = (
        "_approve",
        "_calls",
        "_deps",
        "_emit",
        "_finished",
        "_memory",
        "_model",
        "_run_id",
        "_session",
        "_tools",
    )

    def __init__(
        self,
        *,
        model: Model,
        tools: Mapping[str, Tool[..., Any]],
        session: Session | None,
        memory: Recaller | None,
        deps: Any,
        run_id: str,
        emit: Callable[[Event], None] | None,
        approve: Approver | None,
    ) -> None:
        self._model = model
        self._tools = tools
        self._session = session
        self._memory = memory
        self._deps = deps
        self._run_id = run_id
        self._emit = emit
        self._approve = approve
        self._calls: dict[str, int] = {}
        self._finished: dict[str, ToolResult] = {}

    async def drive(self, loop: Generator[Effect, Any, R]) -> R:
        """Perform effects until the loop returns.

        Cancellation is told to the loop first, so that it can leave a valid history behind.
        """
        answer: Any = None
        try:
            while True:
                effect = loop.send(answer)
                kind = type(effect)
                if kind is CallModel:
                    answer = await self._call_model(effect)  # type: ignore[arg-type]
                elif kind is CallTools:
                    answer = await self._call_tools(effect)  # type: ignore[arg-type]
                elif kind is Append:
                    answer = await self._append(effect)  # type: ignore[arg-type]
                elif kind is Recall:
                    answer = await self._recall(effect)  # type: ignore[arg-type]
                else:
                    answer = await self._ask(effect)  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            self._leave(loop, effect)
            raise
        finally:
            loop.close()

    def _leave(self, loop: Generator[Effect, Any, R], effect: Effect) -> None:
        """Keep the results of a cancelled round of tool calls: some of them may have changed the world."""
        if type(effect) is not CallTools:
            return
        results = [
            self._finished.get(call.id) or ToolResult(call.id, call.name, "The run was cancelled.", "cancelled")
            for call in effect.calls
        ]
        try:
            last = loop.throw(Interrupted(results))
            if type(last) is Append and self._session is not None:
                self._session.append(*last.messages, key=last.key)
        except (Interrupted, StopIteration):
            pass

    async def _call_model(self, effect: CallModel) -> Any:
        emit = self._emit
        if emit is None:
            return await self._model.request(effect.composition)
        step = effect.step
        emit(PromptComposed(step, effect.composition))
        reply = await self._model.request(effect.composition, on_text=lambda text: emit(TextDelta(step, text)))
        emit(ModelReplied(step, reply))
        return reply

    async def _call_tools(self, effect: CallTools) -> Sequence[ToolResult]:
        calls = effect.calls
        if len(calls) == 1:
            return (await self._call_tool(calls[0], effect),)
        if any(call.name in self._tools and self._tools[call.name].policy.sequential for call in calls):
            return [await self._call_tool(call, effect) for call in calls]
        return await asyncio.gather(*[self._call_tool(call, effect) for call in calls])

    async def _call_tool(self, call: ToolCall, effect: CallTools) -> ToolResult:
        emit = self._emit
        if emit is not None:
            emit(ToolStarted(effect.step, call))
        tool = self._tools.get(call.name)
        if tool is None:
            result = unknown_tool(call, self._tools)
        else:
            approved = call.id in effect.approved
            context = ToolContext(self._deps, self._run_id, call.id, approved=approved, calls=self._calls)
            result = await tool.call(call, context)
        self._finished[call.id] = result
        if emit is not None:
            emit(ToolFinished(effect.step, result))
        return result

    async def _append(self, effect: Append) -> None:
        session = self._session
        if session is None:
            return
        if session.blocking:
            await asyncio.shield(asyncio.to_thread(session.append, *effect.messages, key=effect.key))
        else:
            session.append(*effect.messages, key=effect.key)

    async def _recall(self, effect: Recall) -> tuple[Document, ...]:
        assert self._memory is not None
        documents = tuple(await asyncio.to_thread(self._memory.recall, effect.query))
        if self._emit is not None:
            self._emit(Recalled(effect.query, documents))
        return documents

    async def _ask(self, effect: AskApproval) -> frozenset[str]:
        approve = self._approve
        approved: set[str] = set()
        for call in effect.calls:
            context = ToolContext(self._deps, self._run_id, call.id)
            if approve is not None and await self._tools[call.name].needs_approval(call, context):
                answer = approve(call)
                if (await answer) if isinstance(answer, Awaitable) else answer:
                    approved.add(call.id)
        return frozenset(approved)
