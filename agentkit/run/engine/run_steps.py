"""`RunSteps`: performs the steps of one run on the running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from agentkit.errors import ApprovalError, Paused
from agentkit.ground.threads import begin_in_thread, ended, in_thread
from agentkit.models.model import NO_USAGE, Model, OnDelta, Reply, Usage
from agentkit.models.model_errors import ModelReplyError
from agentkit.output.output_validators import CheckedOutput, checked_output
from agentkit.run.engine import events
from agentkit.run.engine.conversation_start import run_start
from agentkit.run.engine.current_run import CurrentRun
from agentkit.run.engine.event_sink import DeltaSink
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.steps import OnResult, RunStart, ToolRound
from agentkit.run.engine.tool_calls import CallMustWait, ToolCalls, call_name, stop_error
from agentkit.run.journal.code_runs import counted_results
from agentkit.run.parts.compaction import CompactionResult, compact_conversation
from agentkit.run.parts.decisions import Decision, decision
from agentkit.run.parts.recaller import RecallResult
from agentkit.run.parts.run_inbox import SentMessage
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, Selection
from agentkit_tools.calling.failures_in_a_row import counts_after
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.calling.tool_threads import run_in_thread
from agentkit_tools.dispatch import call_to_approve, call_tools, received_call
from agentkit_tools.errors import describe_error
from agentkit_tools.form import is_question_id
from agentkit_tools.tool import Tool

if TYPE_CHECKING:
    from agentkit.run.parts.run_guards import Guard, GuardCheck, Subject


class RunSteps:
    """Performs the steps of one run.

    Attributes:
        usage_outside: Usage of model calls that is in no journal entry yet.
        unstored: Messages that could not be appended to the conversation.
        round_problem: Error message if the results of a cancelled round could not be stored; otherwise empty.
        writing: Pending write to the conversation, in a thread.
    """

    __slots__ = (
        "_calls",
        "_chain",
        "_is_cut",
        "_run",
        "_setup",
        "_tools",
        "round_problem",
        "unstored",
        "usage_outside",
        "writing",
    )

    def __init__(self, setup: RunSetup[Any], run: CurrentRun) -> None:
        self._setup = setup
        self._chain = setup.definition.chain
        self._run = run
        self._tools = setup.definition.tools.tools
        self._calls: dict[str, int] = {}  # number of calls by tool name; see `ToolContext.calls`
        if setup.counts is not None:
            self._calls = setup.counts
        elif setup.earlier is not None:
            self._calls = counts_after(counted_results(setup.earlier))
        self._is_cut = False
        self.usage_outside: Usage = NO_USAGE
        self.unstored: tuple[Message, ...] = ()
        self.round_problem = ""
        self.writing: Future[None] | None = None

    # The context

    async def begin(self, at: tuple[int, int] | None = None) -> RunStart:
        setup = self._setup
        if setup.is_new and at is None and not setup.journal.continues_session:
            # The common case needs no look-up, and therefore no thread.
            if setup.session is None:
                return RunStart(setup.ctx.conversation)
            return RunStart(setup.session.conversation)
        return await in_thread(run_start, setup, at)

    async def compact(self, ctx: PromptContext) -> CompactionResult:
        setup, compaction = self._setup, self._setup.definition.compaction
        assert compaction is not None
        result = await compact_conversation(
            compaction, self._chain, ctx, setup.session, self._send_summary, setup.journal.run_id
        )
        self.usage_outside = NO_USAGE  # `result.usage` contains it
        if result.messages:
            await self._emit(events.ConversationCompacted, result.messages, result.summary)
        return result

    async def tools(self, ctx: PromptContext) -> Mapping[str, Tool]:
        self._tools = await self._setup.definition.tools.at(ctx, deps=self._setup.deps)
        return self._tools

    async def select_examples(self, ctx: PromptContext) -> tuple[Selection, ...]:
        return await self._chain.selections(ctx)

    async def recall(self, query: str, visible: int | None) -> RecallResult:
        setup = self._setup
        assert setup.memory is not None
        work = partial(setup.definition.search, setup.memory, query, setup.session, visible)
        result, error = await run_in_thread(work, is_recall=True)
        if error is not None:
            raise error
        await self._emit(events.Recalled, query, *result)
        return result

    # The conversation

    async def append(self, messages: tuple[Message, ...], key: str) -> None:
        session = self._setup.session
        if session is None:
            return
        try:
            # If the session does not have to wait, this thread is faster than another thread.
            if not session.append_now(*messages, key=key):
                self.writing = begin_in_thread(_append, session, messages, key)
                await ended(self.writing)
                self.writing.result()
        except BaseException as error:
            # The error of the run reports these messages, so that the caller can store them.
            self.unstored = messages
            if self._is_cut and isinstance(error, Exception):
                self._note_problem(error)
            raise

    # The model

    async def call_model(self, composition: Composition, step: int) -> Reply:
        # Before the request, which costs money: decisions without a waiting call are an error.
        if self._setup.earlier is not None:
            self.check_decisions()
        return await self.send(self._chain.model, composition, step)

    async def send(self, model: Model, composition: Composition, step: int | None = None) -> Reply:
        """Send a composition and count its usage. With `step`, the listener receives events; a summary has no step."""
        spending, sink = self._run.spending, self._run.sink
        price = spending.price
        if model is not self._chain.model:
            price = spending.checked_price(model)  # a summary can use another model
        reserved, usage = spending.reserve(composition, price), NO_USAGE
        # After a failed call the usage is zero, and the reservation must be released.
        try:
            if sink is None or step is None:
                reply = await model.request(composition)
            else:
                await sink.emit(events.PromptComposed(step, composition))
                deltas = DeltaSink(sink, step, composition.output)
                reply = await model.request(composition, on_delta=self._listener(deltas))
                await deltas.end()
            if not isinstance(reply, Reply) or getattr(reply.message, "role", "") != "assistant":
                raise ModelReplyError(_reply_problem(reply), model=model.name)
            if price is not None:
                reply = spending.priced(reply, composition, price)
            usage = reply.usage
        finally:
            spending.spend(usage, reserved)
        if sink is not None and step is not None:
            await sink.emit(events.ModelReplied(step, reply))
        return reply

    def _listener(self, deltas: DeltaSink) -> OnDelta:
        """Return the listener of a streamed reply."""
        return deltas

    async def _send_summary(self, model: Model, composition: Composition) -> Reply:
        """Send a composition outside of the steps of the run, such as the messages to summarise."""
        reply = await self.send(model, composition)
        self.usage_outside += reply.usage
        return reply

    async def check_guard(self, guard: Guard, subject: Subject, key: str, round_: ToolRound) -> GuardCheck:
        from agentkit.run.parts.run_guards import guard_check

        call_id = "_".join(filter(None, (guard.stage, key)))
        context = self._setup.tool_context(call_id, run=self._tool_calls(round_, _no_result))
        return await guard_check(guard, subject, key, context)

    async def check_output(self, output: Any, step: int) -> CheckedOutput:
        setup = self._setup
        # The id is equal in each attempt, so that validators can use it as an idempotency key.
        context = setup.tool_context(f"output_{step}")
        return await checked_output(output, self._chain.answer.validators, context)

    async def receive(self, step: int, *, is_idle: bool) -> tuple[SentMessage, ...]:
        inbox = self._setup.inbox
        if inbox is None:
            return ()
        received = await inbox.waiting(is_idle=is_idle)
        for sent in received:
            await self._emit(events.MessageReceived, step, sent)
        # Last: if the listener fails, the messages stay in the inbox.
        if received:
            inbox.remove(received)
        return received

    # Tools

    async def ask_approval(self, calls: tuple[ToolCall, ...], round_: ToolRound) -> Mapping[str, Decision]:
        # Predicates read the state of the run, such as the sources of untrusted text.
        state = self._tool_calls(round_, _no_result)
        asked = [await self._call_to_approve(call, round_.asked, state) for call in calls]
        waiting = [call for call in asked if call is not None]
        if waiting:
            await self._emit(events.ApprovalAsked, round_.step, tuple(waiting))
        decisions = await self._decisions(waiting, {call.id for call in round_.calls})
        for call in waiting:
            await self._emit(events.ApprovalGiven, round_.step, call, decisions[call.id])
        return decisions

    async def _decisions(self, waiting: Sequence[ToolCall], round_calls: Collection[str]) -> dict[str, Decision]:
        """Return the decisions about calls, by call id.

        Args:
            waiting: The calls.
            round_calls: Ids of all calls of the round, which can ask a person when they run.

        Raises:
            Paused: Decisions are missing. The error contains all calls, as a journal stores the decisions of a reply
                together.
        """
        approve = self._run.approve
        decisions: dict[str, Decision] = {}
        if approve is None or isinstance(approve, Mapping):
            passed: Mapping[str, Any] = approve or {}
            # Before the pause: otherwise a decision with a mistyped id would pause the run again without an error.
            self.check_decisions({call.id for call in waiting}, round_calls)
            if any(call.id not in passed for call in waiting):
                raise Paused(waiting)
            for call in waiting:
                decisions[call.id] = decision(passed[call.id], call_name(call))
            return decisions
        for call in waiting:
            answer = approve(call)
            if isinstance(answer, Awaitable):
                answer = await answer
            decisions[call.id] = decision(answer, call_name(call))
        return decisions

    async def _call_to_approve(self, call: ToolCall, asked: Collection[str], state: ToolCalls) -> ToolCall | None:
        if call.id not in asked:
            return await call_to_approve(self._tools[call.name], call, self._setup.tool_context(call.id, run=state))
        if call.name not in self._tools:
            return call  # the text about which a guard asks
        return await received_call(self._tools[call.name], call)

    async def call_tools(self, round_: ToolRound, on_result: OnResult) -> None:
        run = self._run
        self._check_needed(round_)
        run.begin_calls(round_.calls)
        round_calls = self._tool_calls(round_, on_result)
        try:
            calls = round_.calls
            if round_.decisions:
                calls = await round_calls.allowed()
            await call_tools(
                calls, self._tools, round_calls.context, on_start=round_calls.on_start, on_end=round_calls.on_end
            )
        except CallMustWait:
            pass  # `run.stopped` has the error that ends the round
        except (Exception, asyncio.CancelledError):
            self._is_cut = True
            # If another process took over the run, that process repeats these calls.
            if run.writer is None or not run.writer.is_taken:
                try:
                    round_calls.cancel()
                except Exception as error:
                    self._note_problem(error)
            raise
        if run.stopped:
            raise stop_error(round_.calls, run.stopped)

    def _note_problem(self, error: Exception) -> None:
        self.round_problem = f"The results of the tool calls could not be stored: {describe_error(error)}"

    def _tool_calls(self, round_: ToolRound, on_result: OnResult) -> ToolCalls:
        return ToolCalls(self._setup, self._run, self._tools, self._calls, round_, on_result)

    def _check_needed(self, round_: ToolRound) -> None:
        """Refuse decisions about calls of this round that need no decision.

        Raises:
            ApprovalError: The tools have changed since the run paused. No call of the round ran.
        """
        approve = self._run.approve
        if approve is None or not isinstance(approve, Mapping):
            return
        ignored = [call_name(call) for call in round_.calls if call.id in approve and call.id not in round_.decisions]
        if ignored:
            raise ApprovalError(
                f"approve: {', '.join(ignored)} needs no approval now, or is an unknown tool: the decision "
                "would be ignored; the call did not run",
                name="approve",
                value=", ".join(ignored),
            )
        if self._setup.earlier is not None:
            self.check_decisions(round_calls=[call.id for call in round_.calls])

    def check_decisions(self, waiting: Collection[str] = (), round_calls: Collection[str] = ()) -> None:
        """Refuse decisions about calls that do not wait.

        Args:
            waiting: Ids of the waiting calls. Earlier decisions, and decisions about calls of inner agents, are valid.
            round_calls: Ids of calls that will run: decisions about their questions are valid.

        Raises:
            ApprovalError: Decisions match no waiting call. The error lists all their ids.
        """
        decisions = self._run.approve
        if not isinstance(decisions, Mapping) or not decisions:
            return
        valid = {*waiting, *self._run.decisions}
        unfinished = self._run.unfinished
        unknown = [
            call
            for call in decisions
            if call not in valid
            and _outer_call(call) not in unfinished
            and not (_outer_call(call) in round_calls and is_question_id(call))
        ]
        if unknown:
            pending = ""
            if waiting:
                pending = f"; waiting calls: {', '.join(sorted(waiting))}"
            raise ApprovalError(
                f"approve: no waiting call has the id {', '.join(sorted(map(repr, unknown)))}{pending}",
                name="approve",
                value=", ".join(sorted(map(str, unknown))),
            )

    # Events

    async def _emit(self, event: Callable[..., events.Event[Any]], *args: Any) -> None:
        """Create an event, if the run has a listener, and wait until the listener has processed it."""
        if self._run.sink is not None:
            await self._run.sink.emit(event(*args))


def _no_result(result: ToolResult, inner_usage: Usage | None) -> None:
    """Ignore a result: calls that wait for decisions have none."""


def _outer_call(call: object) -> str | None:
    """Return the id of the outer call in the id of an inner call, `c1` of `c1/c7`; None for a call of this run."""
    if isinstance(call, str) and "/" in call:
        return call.partition("/")[0]
    return None


def _reply_problem(answer: object) -> str:
    got = type(answer).__name__
    if isinstance(answer, Reply):
        message: object = answer.message
        got = type(message).__name__
        if isinstance(message, Message):
            got = f"a message of the role {message.role}"
    return f"expected a Reply with an assistant Message, got {got}"


def _append(session: Any, messages: tuple[Message, ...], key: str) -> None:
    """Append messages; if another writer appended first, append replies and results after the messages of that writer.

    Raises:
        HeadMoved: Another writer appended before a user message, or rewound the conversation.
    """
    try:
        session.append(*messages, key=key)
    except Exception as error:
        from agentkit_memory.errors import HeadMoved

        if not isinstance(error, HeadMoved) or error.rewound or messages[0].role == "user":
            raise  # a prompt from this conversation would be outdated
        session.append(*messages, key=key)
