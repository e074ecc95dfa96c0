"""The asyncio driver."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from agentkit.errors import ApprovalError, Paused
from agentkit.ground.threads import begin_in_thread, ended, in_thread
from agentkit.models.model import NO_USAGE, Model, Reply, Usage
from agentkit.models.model_errors import ModelReplyError
from agentkit.output.output_validators import checked_output
from agentkit.run.engine import events
from agentkit.run.engine.beginning import beginning
from agentkit.run.engine.effects import (
    Append,
    AskApproval,
    Begin,
    Beginning,
    CallModel,
    CallTools,
    CheckOutput,
    Compact,
    Effect,
    Equip,
    Recall,
    SelectExamples,
)
from agentkit.run.engine.listening import DeltaListener
from agentkit.run.engine.nested_runs import Nesting
from agentkit.run.engine.tool_round import CallWaits, ToolRound, named, what_stopped
from agentkit.run.parts.chain import Chain
from agentkit.run.parts.compaction import Compacted, Compaction, compacted
from agentkit.run.parts.decisions import Decision, decision
from agentkit.run.parts.equipment import Equipment
from agentkit.run.parts.recaller import Found
from agentkit.run.parts.session import Session
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_tools.calling.tool_threads import run_in_thread
from agentkit_tools.dispatch import call_tools
from agentkit_tools.errors import describe_error
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

__all__ = ["AsyncDriver"]

R = TypeVar("R")
_log = logging.getLogger("agentkit")
_log.addHandler(logging.NullHandler())  # whoever wants to read it says where


@dataclass(slots=True)
class AsyncDriver:
    """Performs the effects of one run on the running event loop."""

    chain: Chain[Any]
    equipment: Equipment
    tools: Mapping[str, Tool]
    """The tools of the run by name."""
    ctx: PromptContext
    """What the run is asked with."""
    session: Session | None
    deps: Any
    run_id: str
    is_new: bool
    """Whether no run had this id before."""
    nesting: Nesting
    recall: Callable[[str, Session | None, int | None], Found] | None = None
    """Asks memory, for a query, the session and how much of it the prompt shows."""
    compaction: Compaction | None = None
    resumes: bool = False
    """Whether the run goes on from a journal."""
    unkept: tuple[Message, ...] = ()
    """Messages that could not be added to the conversation."""
    not_kept: str = ""
    """Why the results of tool calls could not be kept, where the run was cut short; "" where they could."""
    writing: Future[None] | None = None
    """What adds messages to the conversation now."""
    beside: Usage = NO_USAGE
    """What model calls beside the steps of the run took, until the answer to an effect reports it."""
    sent: Composition | None = None
    """What was sent last."""
    calls: dict[str, int] = field(default_factory=dict)
    """How many calls of each tool there were."""

    async def drive(self, loop: Generator[Effect, Any, R]) -> R:
        """Perform effects until the loop returns."""
        answer: Any = None
        session, keeper, is_logged = self.session, self.nesting.keeper, _log.isEnabledFor(logging.DEBUG)
        try:
            effect = loop.send(None)
            while True:
                if keeper is not None and not (session is None and isinstance(effect, Append)):
                    await keeper.written()  # before anything is done outside
                if is_logged:
                    _log.debug("run %s: %s", self.run_id, type(effect).__name__)
                if isinstance(effect, Append):
                    if session is not None and not self._append_now(session, effect):
                        await self._append(session, effect)
                    answer = None
                elif isinstance(effect, CallModel):
                    if self.resumes:
                        self._check_decisions()
                    self.sent = effect.composition
                    answer = await self._request(self.chain.model, effect.composition, effect.step)
                elif isinstance(effect, CallTools):
                    effect = await self._call_tools(effect, loop)
                    continue
                elif isinstance(effect, Begin):
                    if self.is_new and not effect.goes_on and effect.at is None:  # nothing has to be looked up
                        answer = Beginning((self.ctx if session is None else session).conversation)
                    else:
                        begin = partial(beginning, effect, session, self.ctx.conversation, is_new=self.is_new)
                        answer = await in_thread(begin)
                elif isinstance(effect, AskApproval):
                    answer = await self._ask(effect)
                elif isinstance(effect, Recall):
                    answer = await self._recall(effect)
                elif isinstance(effect, Compact):
                    answer = await self._compact(effect)
                elif isinstance(effect, SelectExamples):
                    answer = await self.chain.selections(effect.ctx)
                elif isinstance(effect, CheckOutput):
                    context = ToolContext(self.deps, self.run_id, f"output_{effect.step}")
                    answer = await checked_output(effect.output, effect.validators, context)
                else:
                    answer = await self._equip(effect)
                effect = loop.send(answer)
        except StopIteration as end:
            if keeper is not None:
                await keeper.written()
            if self.resumes:
                self._check_decisions()
            return end.value  # type: ignore[no-any-return]
        finally:
            loop.close()

    def was_sent(self, composition: Composition) -> None:
        """Note what was sent before this run goes on."""
        self.sent = composition

    async def _equip(self, effect: Equip) -> Mapping[str, Tool]:
        self.tools = await self.equipment.at(effect.ctx, deps=self.deps)
        return self.tools

    async def _compact(self, effect: Compact) -> Compacted:
        assert self.compaction is not None
        made = await compacted(self.compaction, self.chain, effect.ctx, self.session, self._send, self.run_id)
        self.beside = NO_USAGE  # it is in the answer
        if self.nesting.emit is not None and made.messages:
            await self._tell(events.ConversationCompacted(made.messages, made.summary))
        return made

    async def _send(self, model: Model, composition: Composition) -> Reply:
        """Send a composition that is no step of the run, such as what is to be summarised."""
        reply = await self._request(model, composition, None)
        self.beside += reply.usage
        return reply

    async def _request(self, model: Model, composition: Composition, step: int | None) -> Reply:
        """Send a composition and count what that takes; listeners hear of it where it is a step."""
        nesting, emit = self.nesting, self.nesting.emit
        price = nesting.price if model is self.chain.model else nesting.checked_price(model)
        reserved, usage = nesting.reserve(composition, price), NO_USAGE
        try:
            if emit is None or step is None:
                reply = await model.request(composition)
            else:
                if (taken := emit(events.PromptComposed(step, composition))) is not None:
                    await taken

                heard = DeltaListener(emit, step, composition.output)
                reply = await model.request(composition, on_delta=heard)
                if (taken := heard.end()) is not None:
                    await taken
            if not isinstance(reply, Reply) or getattr(reply.message, "role", "") != "assistant":
                raise ModelReplyError(_no_reply(reply), model=model.name)
            if price is not None:
                reply = nesting.priced(reply, composition, price)
            usage = reply.usage
        finally:
            nesting.spend(usage, reserved)
        if emit is not None and step is not None and (taken := emit(events.ModelReplied(step, reply))) is not None:
            await taken
        return reply

    async def _tell(self, event: events.Event) -> None:
        """Pass an event to who listens, and wait until it was taken."""
        if self.nesting.emit is not None and (taken := self.nesting.emit(event)) is not None:
            await taken

    async def _call_tools(self, effect: CallTools, loop: Generator[Effect, Any, Any]) -> Effect:
        """Run calls, tell the loop each result as it comes, and return what it asks for then."""
        nesting, approve = self.nesting, self.nesting.approve
        if approve is not None and isinstance(approve, Mapping):
            ignored = [named(call) for call in effect.calls if call.id in approve and call.id not in effect.decisions]
            if ignored:  # the tools have changed since the run paused
                raise ApprovalError(
                    f"approve: {', '.join(ignored)} needs no approval now, or there is no such tool: the decision "
                    "would be ignored; the call did not run",
                    name="approve",
                    value=", ".join(ignored),
                )
            if self.resumes:
                self._check_decisions()
        nesting.calls = effect.calls
        round_ = self._round(effect, loop)
        try:
            calls = effect.calls if not effect.decisions else await round_.allowed()
            await call_tools(calls, self.tools, round_.context, on_start=round_.on_start, on_end=round_.on_end)
        except CallWaits:
            pass
        except (Exception, asyncio.CancelledError):  # cancelled, or a listener failed
            await self._keep(round_)
            raise
        if nesting.stopped:
            raise what_stopped(effect.calls, nesting.stopped)
        return round_.effect

    def _round(self, effect: CallTools, loop: Generator[Effect, Any, Any]) -> ToolRound:
        return ToolRound(self, effect, loop)

    def _check_decisions(self, asked: Collection[str] = ()) -> None:
        """Refuse decisions about calls that do not wait: neither `asked`, nor decided before, nor of an agent inside.

        Raises:
            ApprovalError: Names all of them.
        """
        given, journal = self.nesting.approve, self.nesting.journal
        if not isinstance(given, Mapping) or not given or journal is None:
            return
        inside, decided = self.nesting.unfinished, journal.decisions
        unknown = [call for call in given if call not in asked and call not in decided and _outer(call) not in inside]
        if unknown:
            waiting = f"; those that wait: {', '.join(sorted(asked))}" if asked else ""
            raise ApprovalError(
                f"approve: no call that waits has the id {', '.join(sorted(map(repr, unknown)))}{waiting}",
                name="approve",
                value=", ".join(sorted(map(str, unknown))),
            )

    async def _keep(self, round_: ToolRound) -> None:
        """Keep a round of tool calls that was cut short: some of them may have changed the world."""
        keeper = self.nesting.keeper
        if keeper is not None and keeper.is_taken:  # who goes on with the run makes these calls again
            return
        try:
            last = round_.cut_short()
            if isinstance(last, Append):
                if self.session is not None and not self._append_now(self.session, last):
                    await self._append(self.session, last)
                with suppress(StopIteration):  # one of them was the answer
                    round_.loop.send(None)
        except Exception as failure:
            self.not_kept = f"The results of the tool calls could not be kept: {describe_error(failure)}"

    def _append_now(self, session: Session, effect: Append) -> bool:
        """Append where that takes no waiting; return False where it would."""
        try:
            return session.append_now(*effect.messages, key=effect.key)
        except BaseException:
            self.unkept = effect.messages
            raise

    async def _append(self, session: Session, effect: Append) -> None:
        try:
            self.writing = begin_in_thread(_appended, session, effect)
            await ended(self.writing)
            self.writing.result()
        except BaseException:
            self.unkept = effect.messages
            raise

    async def _recall(self, effect: Recall) -> Found:
        assert self.recall is not None
        work = partial(self.recall, effect.query, self.session, effect.visible)
        found, error = await run_in_thread(work, is_recall=True)
        if error is not None:
            raise error
        if self.nesting.emit is not None:
            await self._tell(events.Recalled(effect.query, *found))
        return found

    async def _ask(self, effect: AskApproval) -> Mapping[str, Decision]:
        approve, emit = self.nesting.approve, self.nesting.emit
        asked = [call for call in effect.calls if await self._needs_approval(call)]
        if emit is not None and asked:
            await self._tell(events.ApprovalAsked(effect.step, tuple(asked)))
        if approve is None or isinstance(approve, Mapping):
            given: Mapping[str, Any] = approve or {}
            self._check_decisions({call.id for call in asked})
            if any(call.id not in given for call in asked):
                raise Paused(asked)  # all of them: a journal holds the decisions of a reply together
            made = {call.id: decision(given[call.id], named(call)) for call in asked}
        else:
            made = {}
            for call in asked:
                answer = approve(call)
                made[call.id] = decision((await answer) if isinstance(answer, Awaitable) else answer, named(call))
        if emit is not None:
            for call in asked:
                await self._tell(events.ApprovalGiven(effect.step, call, made[call.id]))
        return made

    async def _needs_approval(self, call: ToolCall) -> bool:
        return await self.tools[call.name].needs_approval(call, ToolContext(self.deps, self.run_id, call.id))


def _outer(call: object) -> str | None:
    """Return the id of the call whose agent a decision is for; None where it is for the run itself."""
    return call.partition("/")[0] if isinstance(call, str) and "/" in call else None


def _no_reply(answer: object) -> str:
    got = type(answer).__name__
    if isinstance(answer, Reply):
        message: object = answer.message
        got = f"one of the role {message.role}" if isinstance(message, Message) else type(message).__name__
    return f"expected a Reply with an assistant Message, got {got}"


def _appended(session: Session, effect: Append) -> None:
    """Append; once more where another writer was first: what is appended at once is valid behind its messages too."""
    try:
        session.append(*effect.messages, key=effect.key)
    except Exception as error:
        from agentkit_memory.errors import HeadMoved

        if not isinstance(error, HeadMoved) or error.rewound or effect.messages[0].role == "user":
            raise  # nothing was sent yet, and what would be sent is out of date; or the run is no longer part of it
        session.append(*effect.messages, key=effect.key)
