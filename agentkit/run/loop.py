"""The agent loop: one run, step by step. Everything an agent decides is on this page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_
from typing import Any, Generic

from agentkit.chain import Chain, Output
from agentkit.errors import LimitExceeded, OutputError
from agentkit.models.model import Reply, Usage
from agentkit.recaller import Found, Recaller, recall
from agentkit.run import events
from agentkit.run.events import RunResult
from agentkit.run.nested_runs import Nesting
from agentkit.session import Session
from agentkit_prompts.composition.compose import Memo
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.dispatch import call_tools
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

__all__ = ["Run", "remembering", "visible"]


@dataclass(slots=True, kw_only=True)
class Run(Generic[Output]):
    """One run: what it may use, and what it has done so far."""

    chain: Chain[Output]
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

    async def answer(self, ctx: PromptContext, memo: Memo) -> RunResult[Output]:
        """Answer one user input."""
        chain, limits = self.chain, self.nesting.limits
        if self.memory is not None:
            ctx = remembering(ctx, await self._recall(self.memory, ctx.user_input.text, visible(chain, ctx, memo)))
        composition = chain.compose(
            ctx, memo=memo
        )  # before anything is kept: a prompt may not render
        messages: tuple[Message, ...] = (ctx.user_input.message,)
        await self._append(messages, 0)
        usage, repairs = Usage(), 0
        seen: set[str] = set()  # ids of tool calls
        for step in range(1, limits.steps + 1):
            if step > 1:
                composition = chain.compose(ctx, memo=memo)
            reply = await self._call_model(composition, step)
            usage = usage + reply.usage
            message = reply.message
            if message.tool_calls:
                message = _with_own_ids(message, seen, step)
                if limits.tool_calls is not None and len(seen) > limits.tool_calls:
                    raise LimitExceeded("tool_calls", limits.tool_calls, "allow more, or offer fewer tools", messages)
                results = await self._call_tools(message, step)
                inside = self.nesting.inner_usage()
                if inside is not None:
                    usage = usage + inside
                fresh = (message, *[result.message for result in results])
            else:
                try:
                    output = chain.parse(reply)
                except OutputError as error:
                    if repairs == limits.repairs:
                        await self._append((message,), step)
                        raise
                    repairs += 1
                    fresh = (message, Message("user", f"{error}. Answer again, with valid JSON only."))
                else:
                    await self._append((message,), step)
                    added = (*messages, message)
                    return RunResult(output, added, composition, usage, step, reply.finish_reason, self.run_id)
            await self._append(fresh, step)
            messages += fresh
            if limits.tokens is not None and usage.input_tokens + usage.output_tokens > limits.tokens:
                raise LimitExceeded("tokens", limits.tokens, "allow more, or shorten the prompt", messages)
            traffic = ctx.intermediate
            ctx = ctx.evolve(intermediate=traffic.append(*fresh) if len(traffic) else Conversation(fresh))
        raise LimitExceeded("steps", limits.steps, "the model did not come to an answer; allow more", messages)

    async def _recall(self, memory: Recaller, query: str, shown: int | None) -> Found:
        found = await asyncio.to_thread(recall, memory, query, self.session, shown)
        if self.nesting.emit is not None:
            self.nesting.emit(events.Recalled(query, *found))
        return found

    async def _append(self, messages: tuple[Message, ...], step: int) -> None:
        """Keep messages at the end of the conversation, under a key of this step."""
        session, key = self.session, f"{self.run_id}:{step}"
        if session is not None and not session.append_now(*messages, key=key):
            append = partial(session.append, *messages, key=key)
            writing = asyncio.get_running_loop().run_in_executor(None, append)
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:  # nobody may use the session before the write has ended
                await asyncio.wait([writing])
                raise
        self.kept += messages

    async def _call_model(self, composition: Composition, step: int) -> Reply:
        emit, model = self.nesting.emit, self.chain.model
        if emit is None:
            reply = await model.request(composition)
            self.nesting.spend(reply.usage)
            return reply
        emit(events.PromptComposed(step, composition))
        reply = await model.request(composition, on_text=lambda text: emit(events.TextDelta(step, text)))
        self.nesting.spend(reply.usage)
        emit(events.ModelReplied(step, reply))
        return reply

    async def _call_tools(self, message: Message, step: int) -> Sequence[ToolResult]:
        calls = message.tool_calls
        heard = _Round(self, step, await self._approved(calls))
        try:
            return await call_tools(calls, self.tools, heard.context, on_start=heard.on_start, on_end=heard.on_end)
        except (Exception, asyncio.CancelledError) as error:  # cancelled, or a listener failed
            try:  # what was done is kept: some of the calls may have changed the world
                await self._append((message, *[heard.result(call).message for call in calls]), step)
            except Exception as failure:
                error.add_note(f"The results of the tool calls could not be kept: {type(failure).__name__}: {failure}")
            raise

    async def _approved(self, calls: tuple[ToolCall, ...]) -> set[str]:
        """Return the ids of the calls that a person agreed to; a tool denies what needs approval and has none."""
        approve = self.nesting.approve
        approved: set[str] = set()
        for call in calls:
            tool = self.tools.get(call.name)
            if approve is None or tool is None or tool.policy.approval == "never":
                continue
            if await tool.needs_approval(call, ToolContext(self.deps, self.run_id, call.id)):
                answer = approve(call)
                if (await answer) if isinstance(answer, Awaitable) else answer:
                    approved.add(call.id)
        return approved


class _Round:
    """The calls of one reply: the context of each, the events of each, and how each has ended so far."""

    __slots__ = ("_approved", "_emit", "_ended", "_run", "_step")

    def __init__(self, run: Run[Any], step: int, approved: set[str]) -> None:
        self._run = run
        self._emit = run.nesting.emit
        self._step = step
        self._approved = approved
        self._ended: dict[str, ToolResult | None] = {}

    def context(self, call: ToolCall) -> ToolContext[Any]:
        run = self._run
        return ToolContext(run.deps, run.run_id, call.id, approved=call.id in self._approved, calls=run.calls)

    def on_start(self, call: ToolCall) -> None:
        self._ended[call.id] = None
        if self._emit is not None:
            self._emit(events.ToolStarted(self._step, call))

    def on_end(self, result: ToolResult) -> None:
        self._ended[result.call_id] = result
        if self._emit is not None:
            self._emit(events.ToolFinished(self._step, result))

    def result(self, call: ToolCall) -> ToolResult:
        """Return how a call ended when the round was cut short."""
        if call.id not in self._ended:
            text = f"{call.name} was not called: the run was cancelled first."
        elif (result := self._ended[call.id]) is not None:
            return result
        else:
            text = f"{call.name} was cancelled with the run. It may still have had an effect."
        return ToolResult(call.id, call.name, text, "cancelled")


def visible(chain: Chain[Any], ctx: PromptContext, memo: Memo | None = None) -> int | None:
    """Return how many messages of the conversation a prompt shows before anything is recalled; None for all."""
    if chain.budget is None or not len(ctx.conversation):
        return None
    return len(chain.compose(ctx, memo=memo).conversation)


def remembering(ctx: PromptContext, found: Found) -> PromptContext:
    """Return the context with what was recalled; facts come after those it has."""
    return ctx.evolve(documents=found.documents, knowledge=(*ctx.knowledge, *found.knowledge))


def _with_own_ids(message: Message, seen: set[str], step: int) -> Message:
    """Give a call without an id, or with one this run has seen, another: results, approval, idempotency go by it."""
    calls = []
    for number, call in enumerate(message.tool_calls, 1):
        own = call.id
        if not own or own in seen:
            own = f"call_{step}_{number}"
            while own in seen:
                own += "_"
        seen.add(own)
        calls.append(call if own is call.id else replace(call, id=own))
    return message if all(map(is_, calls, message.tool_calls)) else replace(message, tool_calls=tuple(calls))
