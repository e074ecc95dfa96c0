"""`RunSteps`: performs the steps of one run on the running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from agentkit.errors import ApprovalError, JournalError, NothingToContinue, Paused
from agentkit.ground.threads import begin_in_thread, ended, in_thread
from agentkit.models.model import NO_USAGE, Model, Reply, Usage
from agentkit.models.model_errors import ModelReplyError
from agentkit.output.output_validators import Checked, checked_output
from agentkit.run.engine import events
from agentkit.run.engine.current_run import CurrentRun
from agentkit.run.engine.listening import DeltaListener
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.steps import Beginning, Ended, ToolRound
from agentkit.run.engine.tool_calls import CallWaits, ToolCalls, call_name, what_stopped
from agentkit.run.parts.compaction import Compacted, compacted
from agentkit.run.parts.decisions import Decision, decision
from agentkit.run.parts.recaller import Found
from agentkit.run.parts.repairs import is_repair
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, Selection
from agentkit_tools.calling.failures_in_a_row import counts_after
from agentkit_tools.calling.tool_threads import run_in_thread
from agentkit_tools.dispatch import call_tools
from agentkit_tools.errors import describe_error
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

__all__ = ["RunSteps", "beginning"]


class RunSteps:
    """Performs the steps of one run.

    Attributes:
        usage_outside: Tokens of model calls that no entry of the journal has yet.
        unstored: Messages that could not be added to the conversation.
        round_problem: The reason why the results of a round that was cut short could not be stored; "" if they were.
        writing: Adds messages to the conversation now.
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
        self._calls: dict[str, int] = {}  # counted by name of the tool; see `ToolContext.calls`
        if setup.known is not None:
            self._calls = counts_after(setup.known.tool_results)
        self._is_cut = False
        self.usage_outside: Usage = NO_USAGE
        self.unstored: tuple[Message, ...] = ()
        self.round_problem = ""
        self.writing: Future[None] | None = None

    # The context

    async def begin(self, at: tuple[int, int] | None = None) -> Beginning:
        setup = self._setup
        if setup.is_new and at is None and not setup.journal.goes_on:
            # The common case looks nothing up, so it needs no thread.
            source = setup.ctx if setup.session is None else setup.session
            return Beginning(source.conversation)
        return await in_thread(beginning, setup, at)

    async def compact(self, ctx: PromptContext) -> Compacted:
        setup, compaction = self._setup, self._setup.definition.compaction
        assert compaction is not None
        result = await compacted(compaction, self._chain, ctx, setup.session, self._send_summary, setup.journal.run_id)
        self.usage_outside = NO_USAGE  # the result has it
        if result.messages:
            await self._tell(events.ConversationCompacted, result.messages, result.summary)
        return result

    async def tools(self, ctx: PromptContext) -> Mapping[str, Tool]:
        self._tools = await self._setup.definition.tools.at(ctx, deps=self._setup.deps)
        return self._tools

    async def select_examples(self, ctx: PromptContext) -> tuple[Selection, ...]:
        return await self._chain.selections(ctx)

    async def recall(self, query: str, visible: int | None) -> Found:
        setup = self._setup
        assert setup.memory is not None
        work = partial(setup.definition.found, setup.memory, query, setup.session, visible)
        found, error = await run_in_thread(work, is_recall=True)
        if error is not None:
            raise error
        await self._tell(events.Recalled, query, *found)
        return found

    # The conversation

    async def append(self, messages: tuple[Message, ...], key: str) -> None:
        session = self._setup.session
        if session is None:
            return
        try:
            # Appending in this thread takes less time than asking another one, if the session need not wait.
            if not session.append_now(*messages, key=key):
                self.writing = begin_in_thread(_append, session, messages, key)
                await ended(self.writing)
                self.writing.result()
        except BaseException as error:
            self.unstored = messages
            if self._is_cut and isinstance(error, Exception):
                self._note_problem(error)
            raise

    # The model

    async def call_model(self, composition: Composition, step: int) -> Reply:
        if self._setup.known is not None:
            self.check_decisions()
        return await self.send(self._chain.model, composition, step)

    async def send(self, model: Model, composition: Composition, step: int | None = None) -> Reply:
        """Send a composition and count its tokens. Listeners receive events of a step; a summary has no step."""
        spending, listening = self._run.spending, self._run.listening
        price = spending.price
        if model is not self._chain.model:
            price = spending.checked_price(model)  # a summary may have a separate model
        reserved, usage = spending.reserve(composition, price), NO_USAGE
        try:
            if listening is None or step is None:
                reply = await model.request(composition)
            else:
                await listening.emit(events.PromptComposed(step, composition))
                deltas = DeltaListener(listening, step, composition.output)
                reply = await model.request(composition, on_delta=deltas)
                await deltas.end()
            if not isinstance(reply, Reply) or getattr(reply.message, "role", "") != "assistant":
                raise ModelReplyError(_no_reply(reply), model=model.name)
            if price is not None:
                reply = spending.priced(reply, composition, price)
            usage = reply.usage
        finally:
            spending.spend(usage, reserved)
        if listening is not None and step is not None:
            await listening.emit(events.ModelReplied(step, reply))
        return reply

    async def _send_summary(self, model: Model, composition: Composition) -> Reply:
        """Send a composition that is no step of the run, such as the messages to summarise."""
        reply = await self.send(model, composition)
        self.usage_outside += reply.usage
        return reply

    async def check_output(self, output: Any, step: int) -> Checked:
        setup = self._setup
        context = ToolContext(setup.deps, setup.journal.run_id, f"output_{step}")
        return await checked_output(output, self._chain.answer.validators, context)

    # Tools

    async def ask_approval(self, calls: tuple[ToolCall, ...], step: int) -> Mapping[str, Decision]:
        approve = self._run.approve
        asked = [call for call in calls if await self._needs_approval(call)]
        if asked:
            await self._tell(events.ApprovalAsked, step, tuple(asked))
        decisions: dict[str, Decision] = {}
        if approve is None or isinstance(approve, Mapping):
            given: Mapping[str, Any] = approve or {}
            self.check_decisions({call.id for call in asked})
            if any(call.id not in given for call in asked):
                raise Paused(asked)  # all calls: a journal stores the decisions of a reply together
            for call in asked:
                decisions[call.id] = decision(given[call.id], call_name(call))
        else:
            for call in asked:
                answer = approve(call)
                if isinstance(answer, Awaitable):
                    answer = await answer
                decisions[call.id] = decision(answer, call_name(call))
        for call in asked:
            await self._tell(events.ApprovalGiven, step, call, decisions[call.id])
        return decisions

    async def _needs_approval(self, call: ToolCall) -> bool:
        context = ToolContext(self._setup.deps, self._setup.journal.run_id, call.id)
        return await self._tools[call.name].needs_approval(call, context)

    async def call_tools(self, round_: ToolRound, ended: Ended) -> None:
        run = self._run
        self._check_used(round_)
        run.begin_calls(round_.calls)
        running = self._tool_calls(round_, ended)
        try:
            calls = round_.calls
            if round_.decisions:
                calls = await running.allowed()
            await call_tools(calls, self._tools, running.context, on_start=running.on_start, on_end=running.on_end)
        except CallWaits:
            pass
        except (Exception, asyncio.CancelledError):
            self._is_cut = True
            # Another process that has taken the run over makes these calls again.
            if run.keeper is None or not run.keeper.is_taken:
                self._cut_short(running)
            raise
        if run.stopped:
            raise what_stopped(round_.calls, run.stopped)

    def _cut_short(self, running: ToolCalls) -> None:
        try:
            running.cut_short()
        except Exception as error:
            self._note_problem(error)

    def _note_problem(self, error: Exception) -> None:
        self.round_problem = f"The results of the tool calls could not be kept: {describe_error(error)}"

    def _tool_calls(self, round_: ToolRound, ended: Ended) -> ToolCalls:
        return ToolCalls(self._setup, self._run, self._tools, self._calls, round_, ended)

    def _check_used(self, round_: ToolRound) -> None:
        """Refuse decisions about calls of this round that need none.

        Raises:
            ApprovalError: The tools have changed since the run paused; names the calls, none of which ran.
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
        if self._setup.known is not None:
            self.check_decisions()

    def check_decisions(self, asked: Collection[str] = ()) -> None:
        """Refuse decisions about calls that do not wait.

        Args:
            asked: Ids of the calls that wait. Earlier decisions, and those about calls of inner agents, are allowed.

        Raises:
            ApprovalError: Names all of them.
        """
        given = self._run.approve
        if not isinstance(given, Mapping) or not given:
            return
        inside, decided = self._run.unfinished, self._run.decided
        unknown = [call for call in given if call not in asked and call not in decided and _outer(call) not in inside]
        if unknown:
            waiting = ""
            if asked:
                waiting = f"; those that wait: {', '.join(sorted(asked))}"
            raise ApprovalError(
                f"approve: no call that waits has the id {', '.join(sorted(map(repr, unknown)))}{waiting}",
                name="approve",
                value=", ".join(sorted(map(str, unknown))),
            )

    # Events

    async def _tell(self, event: Callable[..., events.Event[Any]], *args: Any) -> None:
        """Make an event, pass it to the listener, and wait until the listener has taken it."""
        if self._run.listening is not None:
            await self._run.listening.emit(event(*args))


def _outer(call: object) -> str | None:
    """Return the id of the call whose agent a decision is for; None if it is for the run itself."""
    if isinstance(call, str) and "/" in call:
        return call.partition("/")[0]
    return None


def _no_reply(answer: object) -> str:
    got = type(answer).__name__
    if isinstance(answer, Reply):
        message: object = answer.message
        got = type(message).__name__
        if isinstance(message, Message):
            got = f"one of the role {message.role}"
    return f"expected a Reply with an assistant Message, got {got}"


def _append(session: Any, messages: tuple[Message, ...], key: str) -> None:
    """Append; once more if another writer was first: replies and results are valid after its messages too."""
    try:
        session.append(*messages, key=key)
    except Exception as error:
        from agentkit_memory.errors import HeadMoved

        if not isinstance(error, HeadMoved) or error.rewound or messages[0].role == "user":
            raise  # a question would be answered from an outdated prompt; after a rewind the run has no place
        session.append(*messages, key=key)


# The conversation before a run


def beginning(setup: RunSetup[Any], at: tuple[int, int] | None) -> Beginning:
    """Return the messages before a run, and those that an earlier attempt at it stored.

    Raises:
        NothingToContinue: The run has no input, and the conversation has no message of a user.
        JournalError: The conversation is shorter than at the beginning of the run.
    """
    session, run_id = setup.session, setup.journal.run_id
    conversation = (setup.ctx if session is None else session).conversation
    if at is not None:
        before, done = at
        if len(conversation) < before + done:
            raise JournalError(
                f"run {run_id!r} began after {before + done} messages, and the conversation has "
                f"{len(conversation)}: it is another one",
                name="conversation",
                value=run_id,
            )
        if done and session is not None and session.position(f"{run_id}:0") == before:
            return Beginning(conversation[:before], _stored_messages(run_id, session, before)[:done])
        return _split(conversation, before, before + done)
    if setup.journal.goes_on:
        return _split(conversation, _last_question(conversation), len(conversation))
    first = None
    if session is not None and not setup.is_new:
        first = session.position(f"{run_id}:0")
    if session is None or first is None:
        return Beginning(conversation)
    return Beginning(conversation[:first], _stored_messages(run_id, session, first))


def _split(conversation: Conversation, first: int, last: int) -> Beginning:
    return Beginning(conversation[:first], tuple(conversation[first:last]))


def _last_question(conversation: Conversation) -> int:
    """Return the index of the last message of a user that does not ask for a repair."""
    for at in range(len(conversation) - 1, -1, -1):
        if conversation[at].role == "user" and not is_repair(conversation[at]):
            return at
    raise NothingToContinue(
        "the conversation has no message of a user to answer: give the run an input",
        name="user_input",
        value="no question",
    )


def _stored_messages(run_id: str, session: SessionProtocol, first: int) -> tuple[Message, ...]:
    """Return the messages of a run, which were stored step by step; other writers may have added some between them."""
    conversation = session.conversation
    stored, step = [conversation[first]], 1
    position = session.position(f"{run_id}:1")
    while position is not None:
        step += 1
        following = session.position(f"{run_id}:{step}")
        for at in range(position, len(conversation)):
            message = conversation[at]
            if at == following or (message.role == "user" and not is_repair(message)):
                break  # the next step, or another writer
            stored.append(message)
        position = following
    return tuple(stored)
