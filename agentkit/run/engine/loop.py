"""The agent loop. It does no I/O: it awaits `Steps`, and everything an agent decides is on this page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import is_
from types import MappingProxyType
from typing import Any, Generic, NamedTuple

from agentkit.errors import LimitExceeded, NothingToContinue, OutputError, OutputStopped, RunIdReused
from agentkit.models.model import NO_USAGE, Reply, Usage
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.steps import Steps, ToolRound
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.trace import TraceSpan
from agentkit.run.parts.chain import Chain, Output
from agentkit.run.parts.citations import Citation, citations, unknown_labels
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.recaller import Found
from agentkit.run.parts.repairs import is_repair, repair_message
from agentkit_prompts.composition.compose import RenderCache
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.select_examples import needs_selection
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.context.short_repr import short_repr
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

__all__ = ["RunResult", "remembering", "run_loop", "visible"]

_NO_DECISIONS: Mapping[str, Decision] = MappingProxyType({})


@dataclass(slots=True, repr=False)
class RunResult(Generic[Output]):
    """How a run ended. Not frozen, which would be slow to build; treat it as if it were."""

    __repr__ = short_repr

    output: Output
    """The answer. If a limit ended the run, its last text, or None if the answer is another type."""
    messages: tuple[Message, ...]
    """What the run added to the conversation, the user's message first."""
    composition: Composition
    """The last prompt that was sent. If a limit ended the run before that, its prompt without missing recalls.
    """
    usage: Usage
    """Tokens of all model calls, including the calls of agents that ran as tools."""
    steps: int
    """Model calls."""
    finish_reason: str
    """Why the model stopped: `stop`, or `length` when the answer was cut; see `Reply`."""
    run_id: str
    journal: Journal = field(repr=False, compare=False)
    """What the run asked for and was answered: `Agent.resume` takes it."""
    limit: LimitExceeded | None = None
    """The limit that ended the run, if `Limits.on_limit` is `return`."""
    listener_errors: Sequence[Exception] = ()
    """Errors of `on_event`, if `on_event_error` is `report`; the first of them if it raised many."""

    @property
    def cost(self) -> float | None:
        """US dollars of all model calls; None if a price is not known."""
        return self.usage.money

    def trace(self) -> TraceSpan:
        """Return the run as spans, as JSON data; see `TraceSpan`."""
        return self.journal.trace()

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The documents that the answer names by their labels, `[source#chunk]`, with their places in it, in order."""
        return citations(self._text, self.composition)

    @property
    def unknown_labels(self) -> tuple[str, ...]:
        """What looks like a label in the answer and is that of no document that was sent: it is no citation."""
        return unknown_labels(self._text, self.composition)

    @property
    def _text(self) -> str:
        """The text of the reply, whatever type the output has."""
        return next((one.text for one in reversed(self.messages) if one.role == "assistant" and one.text), "")


async def run_loop(run: RunSetup[Output], steps: Steps) -> RunResult[Output]:
    """Answer one user input.

    A replay awaits nothing that suspends: `run_loop(run, steps).send(None)` returns at its end.

    Raises:
        LimitExceeded: The run used more than its limits allow.
        OutputError: The answer is not the output type, after all repair turns.
        NothingToContinue: The run has no input, and the last message of the conversation is an answer.
        RunIdReused: An earlier run of this id had another input.
    """
    chain, limits = run.definition.chain, run.definition.limits
    turn = _Turn(run, steps)
    await turn.begin()
    while turn.result is None:
        if limits.steps is not None and turn.step >= limits.steps:
            raise LimitExceeded("steps", limits.steps, "the model did not come to an answer; allow more")
        turn.step += 1
        reply = chain.answer.reply(await steps.call_model(turn.composition, turn.step))
        turn.usage += reply.usage
        if reply.message.tool_calls:
            await turn.call_tools(reply.message)
        else:
            await turn.read_answer(reply)
        if turn.result is None:
            limits.check(turn.usage)
            await turn.compose_next()
    return turn.result


class _Answer(NamedTuple):
    """The answer of a reply, or the message that asks the model to repair it."""

    output: Any
    repair: Message | None


class _Turn(Generic[Output]):
    """One run between two steps: its context, its messages and its counts."""

    __slots__ = (
        "chain",
        "composition",
        "ctx",
        "messages",
        "repairs",
        "result",
        "run",
        "seen",
        "step",
        "steps",
        "tools",
        "unavailable",
        "usage",
    )

    composition: Composition
    """The next prompt."""
    tools: Mapping[str, Tool]
    """The tools that the model may call, by name."""

    def __init__(self, run: RunSetup[Output], steps: Steps) -> None:
        self.run = run
        self.steps = steps
        self.chain: Chain[Output] = run.definition.chain
        self.ctx = run.ctx
        self.messages: tuple[Message, ...] = ()
        self.usage: Usage = NO_USAGE
        self.step = 0
        self.repairs = 0
        self.seen: set[str] = set()  # the ids of all calls
        self.unavailable: set[str] = set()  # the names of tools that failed too often
        self.result: RunResult[Output] | None = None

    # The beginning

    async def begin(self) -> None:
        """Read the conversation, complete the context and store the message of the user."""
        conversation, stored = await self.steps.begin()
        if conversation is not self.ctx.conversation:
            self.ctx = self.ctx.evolve(conversation=conversation)
        answer = None
        if stored:
            answer = await self._continue(stored)
        # Missing kwargs are found before memory is asked, and before a model writes a summary.
        self.chain.preflight(self.ctx.user_input)
        await self._complete_context()
        # The prompt is composed before anything is stored: one that cannot be rendered changes no conversation.
        self.composition = self.chain.compose(self.ctx, cache=self.run.render_cache)
        if not stored:
            self.messages = (self.ctx.user_input.message,)
            await self.steps.append(self.messages, f"{self.run.journal.run_id}:0")
        elif answer is not None and answer.repair is None:
            self._finish(answer.output)
        elif answer is not None and answer.repair is not None:
            await self._ask_repair(answer.repair)
            self._add(answer.repair)
            self.composition = self.chain.compose(self.ctx, cache=self.run.render_cache)

    async def _continue(self, stored: tuple[Message, ...]) -> _Answer | None:
        """Continue after the messages that an earlier attempt stored; return its answer, if there was one."""
        run = self.run
        self.messages = stored
        self.repairs = sum(map(is_repair, stored))
        self.step = sum([message.role == "assistant" for message in stored])
        self.seen.update([call.id for message in stored for call in message.tool_calls])
        answer = None
        if stored[-1].role == "assistant" and not stored[-1].tool_calls:
            answer = await self._read(Reply(stored[-1]), stored)
        if run.journal.goes_on:
            if answer is not None and answer.repair is None:
                raise NothingToContinue(
                    "the last message of the conversation is an answer: give the run an input",
                    name="user_input",
                    value="answered",
                )
        elif stored[0] != self.ctx.user_input.message:
            raise RunIdReused(run.journal.run_id)
        self.ctx = self.ctx.evolve(
            user_input=UserInput(stored[0].content, self.ctx.user_input.additional_kwargs),
            intermediate=Conversation(stored[1:]),
        )
        return answer

    async def _complete_context(self) -> None:
        """Add summary, tools, examples and recalled items to the context."""
        definition, steps = self.run.definition, self.steps
        is_cut = False
        if definition.compaction is not None and len(self.ctx.conversation):
            compacted = await steps.compact(self.ctx)
            self.usage, is_cut = compacted.usage, compacted.messages > 0
            conversation = self.ctx.conversation[compacted.messages :]
            self.ctx = self.ctx.evolve(conversation=conversation, summary=compacted.summary)
        if definition.tools.is_per_run:
            await self._make_tools()
        else:
            self.tools = definition.tools.tools
        if needs_selection(self.chain.layers):
            self.ctx = self.ctx.evolve(selections=await steps.select_examples(self.ctx))
        if self.run.memory is not None:
            shown = visible(self.chain, self.ctx, self.run.render_cache, is_cut=is_cut)
            self.ctx = remembering(self.ctx, await steps.recall(self.ctx.user_input.text, shown))

    # Replies without tool calls

    async def read_answer(self, reply: Reply) -> None:
        """Store a reply; end the run with its answer, or ask the model to repair it."""
        message = reply.message
        repair = await self.steps.append((message,), f"{self.run.journal.run_id}:{self.step}")
        if repair is None:
            answer = await self._read(reply)
            if answer.repair is None:
                self._finish(answer.output, (message,), reply.finish_reason)
                return
            repair = answer.repair
        await self._ask_repair(repair)
        self._add(message, repair)

    async def _read(self, reply: Reply, messages: Sequence[Message] = ()) -> _Answer:
        """Read an answer; `messages` are those of an earlier attempt, which ends with it.

        Raises:
            OutputError: The answer is not the output type, or a validator refused it, and no repair is left.
        """
        if self.chain.answer.tool is not None and len(messages) > 1 and messages[-2].role == "tool":
            # The earlier attempt called the function that takes the answer; the message has its return value.
            return await self._check(self.chain.answer.restored(reply.message.text))
        try:
            output = self.chain.parse(reply)
        except OutputError as error:
            if isinstance(error, OutputStopped) or not self._may_repair:
                raise
            return _Answer(None, repair_message(error))
        return await self._check(output)

    async def _check(self, output: Any) -> _Answer:
        """Call the validators with an output."""
        if not self.chain.answer.validators:
            return _Answer(output, None)
        checked = await self.steps.check_output(output, self.step)
        if checked.problem is None:
            return _Answer(checked.output, None)
        error = self.chain.answer.refused(output, checked.problem)
        if not self._may_repair:
            raise error
        return _Answer(output, repair_message(error))

    @property
    def _may_repair(self) -> bool:
        return self.repairs < self.run.definition.limits.repairs

    async def _ask_repair(self, repair: Message) -> None:
        self.repairs += 1
        await self.steps.append((repair,), f"{self.run.journal.run_id}:{self.step}:repair")

    # Replies with tool calls

    async def call_tools(self, message: Message) -> None:
        """Run the calls of a reply, and store the reply with their results."""
        message = _with_unique_ids(message, self.seen, self.step)
        allowed = self.run.definition.limits.tool_calls
        if allowed is not None and len(self.seen) > allowed:
            raise LimitExceeded("tool_calls", allowed, "allow more, or offer fewer tools")
        asking = _asking(message.tool_calls, self.tools)
        decisions = _NO_DECISIONS
        if asking:
            decisions = await self.steps.ask_approval(asking, self.step)
        before = self.ctx.conversation, self.messages, (message,)
        round_ = ToolRound(message.tool_calls, self.step, decisions, self.usage, before)
        results: dict[str, ToolResult] = {}

        def ended(result: ToolResult, inside: Usage | None) -> None:
            results[result.call_id] = result
            if inside is not None:
                round_.usage = self.usage = self.usage + inside

        try:
            await self.steps.call_tools(round_, ended)
        except (Exception, asyncio.CancelledError):
            # Tools of a round that was cut short may have changed the world: the conversation keeps their results.
            if len(results) == len(message.tool_calls):
                with suppress(Exception):
                    await self._end_round(message, results, is_cut=True)
            raise
        self._withdraw_failed(results)
        await self._end_round(message, results)

    def _withdraw_failed(self, results: Mapping[str, ToolResult]) -> None:
        """Offer tools that failed too often no more."""
        failed = {result.name for result in results.values() if result.status == "unavailable"}
        if not failed <= self.unavailable:
            self.unavailable |= failed
            self.ctx = self.ctx.evolve(tools=self._offered(self.ctx.tools))

    async def _end_round(self, message: Message, results: Mapping[str, ToolResult], *, is_cut: bool = False) -> None:
        """Store a round of tool calls; end the run if one of its results is the answer."""
        fresh = (message, *[results[call.id].message for call in message.tool_calls])
        key = f"{self.run.journal.run_id}:{self.step}"
        final = _final(message, self.tools, results)
        if final is not None:
            await self._end_with_final(final, fresh, key)
            return
        ending = None
        if self.chain.answer.tool is not None:
            ending = self.chain.answer.ending(message, results)
        if ending is None:
            await self.steps.append(fresh, key)
        elif not ending.ok:
            await self.steps.append(fresh, key)
            if not self._may_repair:
                raise self.chain.answer.failed(ending)
            self.repairs += 1
        elif is_cut and self.chain.answer.validators:
            return  # the run was cut before the answer was checked: the next attempt checks it
        else:
            output, text = self.chain.answer.returned(ending)
            answer = await self._check(output)
            fresh += (answer.repair or Message("assistant", text),)
            await self.steps.append(fresh, key)
            if answer.repair is None:
                self._finish(answer.output, fresh)
                return
            self.repairs += 1
        self._add(*fresh)

    async def _end_with_final(self, final: ToolResult, fresh: tuple[Message, ...], key: str) -> None:
        """End the run with the result of a final tool as the answer."""
        answer = Message("assistant", final.message.text)
        try:
            output = self.chain.parse(Reply(answer))
        except OutputError:
            # The tool may have changed the world: its result is stored although it is no answer.
            await self.steps.append(fresh, key)
            raise
        await self.steps.append((*fresh, answer), key)
        self._finish(output, (*fresh, answer))

    # The next prompt, and the end

    async def compose_next(self) -> None:
        """Compose the prompt of the next step."""
        if self.run.definition.tools.is_per_step:
            await self._make_tools()
        self.composition = self.chain.compose(self.ctx, cache=self.run.render_cache)

    async def _make_tools(self) -> None:
        self.tools = await self.steps.tools(self.ctx)
        self.ctx = self.ctx.evolve(tools=self._offered([tool.spec for tool in self.tools.values()]))

    def _offered(self, specs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([spec for spec in specs if spec.name not in self.unavailable])

    def _add(self, *fresh: Message) -> None:
        """Add messages to the run, and to the context of the next prompt."""
        self.messages += fresh
        before = self.ctx.intermediate
        self.ctx = self.ctx.evolve(intermediate=before.append(*fresh) if len(before) else Conversation(fresh))

    def _finish(self, output: Any, fresh: tuple[Message, ...] = (), reason: str = "stop") -> None:
        """End the run with its answer."""
        journal = self.run.journal
        messages = self.messages + fresh
        self.result = RunResult(
            output, messages, self.composition, self.usage, self.step, reason, journal.run_id, journal
        )


def visible(chain: Chain[Any], ctx: PromptContext, cache: RenderCache | None, *, is_cut: bool = False) -> int | None:
    """Return the number of messages of the conversation that a prompt shows before recall; None for all.

    `is_cut`: the conversation of `ctx` is the end of a longer one.
    """
    if (chain.budget is None and not hasattr(chain.model, "fitted")) or not len(ctx.conversation):
        return len(ctx.conversation) if is_cut else None
    return len(chain.compose(ctx, cache=cache).conversation)


def remembering(ctx: PromptContext, found: Found) -> PromptContext:
    """Return the context with recalled items; recalled facts come after the facts of the context.

    Requests to repair an answer are left out: they have the role of the user, and may quote the model.
    """
    recalled = tuple([message for message in found.recalled if not is_repair(message)])
    knowledge = (*ctx.knowledge, *found.knowledge)
    return ctx.evolve(documents=found.documents, knowledge=knowledge, recalled=recalled)


def _asking(calls: tuple[ToolCall, ...], tools: Mapping[str, Tool]) -> tuple[ToolCall, ...]:
    """Return the calls of tools that may need approval; a tool denies a call that was not approved."""
    return tuple([call for call in calls if call.name in tools and tools[call.name].policy.approval != "never"])


def _final(message: Message, tools: Mapping[str, Tool], results: Mapping[str, ToolResult]) -> ToolResult | None:
    """Return the first successful result of a final tool, which ends the run."""
    for call in message.tool_calls:
        tool = tools.get(call.name)
        if tool is not None and tool.policy.final and results[call.id].ok:
            return results[call.id]
    return None


def _with_unique_ids(message: Message, seen: set[str], step: int) -> Message:
    """Give each call an id that is unique in the run: results, approval and idempotency keys use it.

    An id with a slash is replaced too: a slash separates the id of a call from the ids of the agent that it runs.
    """
    calls = []
    for number, call in enumerate(message.tool_calls, 1):
        call_id = call.id
        if not call_id or call_id in seen or "/" in call_id:
            call_id = f"call_{step}_{number}"
            while call_id in seen:
                call_id += "_"
            call = replace(call, id=call_id)
        seen.add(call_id)
        calls.append(call)
    if all(map(is_, calls, message.tool_calls)):
        return message
    return replace(message, tool_calls=tuple(calls))
