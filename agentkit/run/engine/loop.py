"""The agent loop: a generator that does no I/O.

It yields effects and receives their results; drivers perform them. Everything an agent decides is on this page.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from types import MappingProxyType
from typing import Any, Generic, cast

from agentkit.errors import LimitExceeded, NothingToContinue, OutputError, OutputStopped, RunIdReused
from agentkit.models.model import NO_USAGE, Reply, Usage
from agentkit.output.output_validators import Checked
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
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.trace import TraceSpan
from agentkit.run.parts.chain import Chain, Output
from agentkit.run.parts.citations import Citation, citations, unknown_labels
from agentkit.run.parts.compaction import Compacted
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.limits import Limits
from agentkit.run.parts.recaller import Found
from agentkit_prompts.composition.compose import Memo
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.select_examples import needs_selection
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, RecalledMessage, UserInput
from agentkit_prompts.context.short_repr import short_repr
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

__all__ = ["RunResult", "is_repair", "remembering", "run_loop", "visible"]

_REPAIR = "Answer again, with valid JSON only."
"""How a message ends that asks the model to repair its answer."""
_NO_DECISIONS: Mapping[str, Decision] = MappingProxyType({})


@dataclass(slots=True, repr=False)
class RunResult(Generic[Output]):
    """How a run ended. Not frozen, which would be slow to build; treat it as if it were."""

    __repr__ = short_repr

    output: Output
    """The answer. Where a limit ended the run, the text there was, or None if the answer is another type."""
    messages: tuple[Message, ...]
    """What the run added to the conversation, the user's message first."""
    composition: Composition
    """The last thing that was sent. Where a limit ended the run before that, its prompt without what was not found yet.
    """
    usage: Usage
    """Tokens of all model calls, those of agents that tools ran among them."""
    steps: int
    """Model calls."""
    finish_reason: str
    """Why the model stopped: `stop`, or `length` when the answer was cut; see `Reply`."""
    run_id: str
    journal: Journal = field(repr=False, compare=False)
    """What the run asked for and was answered: `Agent.resume` takes it."""
    limit: LimitExceeded | None = None
    """The limit that ended the run, where `Limits.on_limit` is `return`."""
    listener_errors: Sequence[Exception] = ()
    """What `on_event` raised, where `on_event_error` is `report`; the first of them if there were many."""

    @property
    def cost(self) -> float | None:
        """US dollars of all model calls; None where a price is not known."""
        return self.usage.money

    def trace(self) -> TraceSpan:
        """Return the run as spans, as JSON data; see `TraceSpan`."""
        return self.journal.trace()

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The documents that the answer names by their labels, `[source#chunk]`, with where it does, in order."""
        return citations(self._text, self.composition)

    @property
    def unknown_labels(self) -> tuple[str, ...]:
        """What looks like a label in the answer and is that of no document that was sent: it is no citation."""
        return unknown_labels(self._text, self.composition)

    @property
    def _text(self) -> str:
        """The text of the reply, whatever type the output has."""
        return next((one.text for one in reversed(self.messages) if one.role == "assistant" and one.text), "")


def run_loop(
    chain: Chain[Output],
    ctx: PromptContext,
    tools: Mapping[str, Tool] | None,
    limits: Limits,
    journal: Journal,
    *,
    recalls: bool = False,
    compacts: bool = False,
    equips_steps: bool = False,
    memo: Memo | None = None,
) -> Generator[Effect, Any, RunResult[Output]]:
    """Answer one user input.

    Args:
        chain: What the prompt is made with, and what reads the answer.
        ctx: The context, without the conversation of a session and without what memory finds.
        tools: The tools by name; None where each run has its own.
        limits: What the run may use.
        journal: Names the run, and goes into its result. The keys of its appends begin with the id of the run.
        recalls: Whether memory is asked.
        compacts: Whether a long conversation is compacted.
        equips_steps: Whether each step has tools of its own.
        memo: Fragments rendered for earlier turns.
    """
    run_id, goes_on = journal.run_id, journal.goes_on
    begun: Beginning = yield Begin(run_id, goes_on)
    if begun.conversation is not ctx.conversation:
        ctx = ctx.evolve(conversation=begun.conversation)
    messages, repairs, step = begun.done, 0, 0
    seen: set[str] = set()
    read: tuple[Output, Message | None] | None = None
    if messages:
        repairs, step = sum(map(is_repair, messages)), sum([message.role == "assistant" for message in messages])
        seen.update([call.id for message in messages for call in message.tool_calls])
        if _is_answer(messages[-1]):
            answer = Reply(messages[-1])
            read = yield from _read(chain, answer, messages, step, may_repair=repairs < limits.repairs)
        if goes_on and read is not None and read[1] is None:
            raise NothingToContinue(
                "the last message of the conversation is an answer: give the run an input",
                name="user_input",
                value="answered",
            )
        if not goes_on and messages[0] != ctx.user_input.message:
            raise RunIdReused(run_id)
        ctx = ctx.evolve(
            user_input=UserInput(messages[0].content, ctx.user_input.additional_kwargs),
            intermediate=Conversation(messages[1:]),
        )
    chain.preflight(ctx.user_input)
    usage, is_cut = NO_USAGE, False
    if compacts and len(ctx.conversation):
        made: Compacted = yield Compact(ctx)
        usage, is_cut = made.usage, made.messages > 0
        ctx = ctx.evolve(conversation=ctx.conversation[made.messages :], summary=made.summary)
    if tools is None:
        tools = cast("Mapping[str, Tool]", (yield Equip(ctx)))
        ctx = ctx.evolve(tools=tuple([tool.spec for tool in tools.values()]))
    if needs_selection(chain.layers):
        ctx = ctx.evolve(selections=(yield SelectExamples(ctx)))
    if recalls:
        ctx = remembering(ctx, (yield Recall(ctx.user_input.text, visible(chain, ctx, memo, is_cut=is_cut))))
    composition = chain.compose(ctx, memo=memo)  # before anything is kept: a prompt that cannot render costs nothing
    if not messages:
        messages = (ctx.user_input.message,)
        yield Append(messages, f"{run_id}:0")
    elif read is not None:
        output, repair = read
        if repair is None:
            return RunResult(output, messages, composition, usage, step, "stop", run_id, journal)
        yield Append((repair,), f"{run_id}:{step}:repair")
        messages += (repair,)
        ctx = ctx.evolve(intermediate=ctx.intermediate.append(repair))
        composition, repairs = chain.compose(ctx, memo=memo), repairs + 1
    gone: set[str] = set()
    while True:
        if limits.steps is not None and step >= limits.steps:
            raise LimitExceeded("steps", limits.steps, "the model did not come to an answer; allow more")
        step += 1
        reply: Reply = chain.answer.reply((yield CallModel(composition, step)))
        usage = usage + reply.usage
        message = reply.message
        if message.tool_calls:
            message = _with_own_ids(message, seen, step)
            if limits.tool_calls is not None and len(seen) > limits.tool_calls:
                raise LimitExceeded("tool_calls", limits.tool_calls, "allow more, or offer fewer tools")
            asking = _asking(message.tool_calls, tools)
            decisions: Mapping[str, Decision] = (yield AskApproval(asking, step)) if asking else _NO_DECISIONS
            calls = {call.id: call for call in message.tool_calls}
            results: dict[str, ToolResult] = {}
            known = len(gone)
            while calls:
                traffic = ctx.conversation, messages, (message,)
                result, inside = yield CallTools(tuple(calls.values()), step, decisions, usage, traffic)
                results[result.call_id] = result
                del calls[result.call_id]
                if inside is not None:
                    usage = usage + inside
                if result.status == "unavailable":  # it failed too often: the model is not offered it any more
                    gone.add(result.name)
            fresh = (message, *[results[call.id].message for call in message.tool_calls])
            if len(gone) > known:
                ctx = ctx.evolve(tools=tuple([spec for spec in ctx.tools if spec.name not in gone]))
            if (final := _final(message, tools, results)) is not None:  # its result is the answer
                answered = Message("assistant", final.message.text)
                try:
                    output = chain.parse(Reply(answered))
                except OutputError:
                    yield Append(fresh, f"{run_id}:{step}")
                    raise
                yield Append((*fresh, answered), f"{run_id}:{step}")
                messages += (*fresh, answered)
                return RunResult(output, messages, composition, usage, step, "stop", run_id, journal)
            ending = None if chain.answer.tool is None else chain.answer.ending(message, results)
            if ending is not None and ending.ok:  # the function that takes the answer was called
                output, text = chain.answer.returned(ending)
                output, repair = yield from _check(chain, output, step, may_repair=repairs < limits.repairs)
                fresh += (repair or Message("assistant", text),)
                yield Append(fresh, f"{run_id}:{step}")
                if repair is None:
                    messages += fresh
                    return RunResult(output, messages, composition, usage, step, "stop", run_id, journal)
            else:
                yield Append(fresh, f"{run_id}:{step}")
            if ending is not None:
                if repairs >= limits.repairs:
                    raise chain.answer.failed(ending)
                repairs += 1
        else:
            repair = yield Append((message,), f"{run_id}:{step}")
            if repair is None:
                may_repair = repairs < limits.repairs
                output, repair = yield from _read(chain, reply, (), step, may_repair=may_repair)
                if repair is None:
                    messages += (message,)
                    return RunResult(output, messages, composition, usage, step, reply.finish_reason, run_id, journal)
            repairs += 1
            yield Append((repair,), f"{run_id}:{step}:repair")
            fresh = (message, repair)
        messages += fresh
        limits.check(usage)
        before = ctx.intermediate
        ctx = ctx.evolve(intermediate=before.append(*fresh) if len(before) else Conversation(fresh))
        if equips_steps:
            tools = cast("Mapping[str, Tool]", (yield Equip(ctx)))
            ctx = ctx.evolve(tools=tuple([tool.spec for tool in tools.values() if tool.name not in gone]))
        composition = chain.compose(ctx, memo=memo)


def is_repair(message: Message | RecalledMessage) -> bool:
    """Return whether a message asks the model to repair its answer."""
    return message.role == "user" and message.text.endswith(_REPAIR)


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and not message.tool_calls


def _read(
    chain: Chain[Output], reply: Reply, messages: Sequence[Message], step: int, *, may_repair: bool
) -> Generator[Effect, Any, tuple[Output, Message | None]]:
    """Return the answer of a reply, or the message that asks the model to repair it; `messages` are those of the run.

    Raises:
        OutputError: It is not the output type, or a validator does not take it, and it may not be repaired.
    """
    if chain.answer.tool is not None and len(messages) > 1 and messages[-2].role == "tool":
        output = chain.answer.restored(reply.message.text)  # the function was called by an earlier attempt
    else:
        try:
            output = chain.parse(reply)
        except OutputError as error:
            if not may_repair or isinstance(error, OutputStopped):
                raise
            return cast(Output, None), _repairing(error)
    return (yield from _check(chain, output, step, may_repair=may_repair))


def _check(
    chain: Chain[Output], output: Output, step: int, *, may_repair: bool
) -> Generator[Effect, Any, tuple[Output, Message | None]]:
    """Return what the validators make of an answer, or the message that asks the model to answer again."""
    if not chain.answer.validators:
        return output, None
    checked: Checked = yield CheckOutput(output, chain.answer.validators, step)
    if checked.problem is None:
        return checked.output, None
    error = chain.answer.refused(output, checked.problem)
    if not may_repair:
        raise error
    return output, _repairing(error)


def _repairing(error: OutputError) -> Message:
    return Message("user", f"{error}. {_REPAIR}")


def visible(chain: Chain[Any], ctx: PromptContext, memo: Memo | None = None, *, is_cut: bool = False) -> int | None:
    """Return how many messages of the conversation a prompt shows before anything is recalled; None for all.

    `is_cut` says that the conversation of `ctx` is the end of a longer one.
    """
    if (chain.budget is None and not hasattr(chain.model, "fitted")) or not len(ctx.conversation):
        return len(ctx.conversation) if is_cut else None
    return len(chain.compose(ctx, memo=memo).conversation)


def remembering(ctx: PromptContext, found: Found) -> PromptContext:
    """Return the context with what was recalled; facts come after those it has.

    What asked a model to repair its answer stands in the name of the user, and may quote the model: it is left out.
    """
    recalled = tuple([message for message in found.recalled if not is_repair(message)])
    knowledge = (*ctx.knowledge, *found.knowledge)
    return ctx.evolve(documents=found.documents, knowledge=knowledge, recalled=recalled)


def _asking(calls: tuple[ToolCall, ...], tools: Mapping[str, Tool]) -> tuple[ToolCall, ...]:
    """Return the calls of tools that may need approval; a tool denies what was not approved."""
    return tuple([call for call in calls if call.name in tools and tools[call.name].policy.approval != "never"])


def _final(message: Message, tools: Mapping[str, Tool], results: Mapping[str, ToolResult]) -> ToolResult | None:
    """Return the result of the first call that ends the run: that of a final tool which ran to its end."""
    for call in message.tool_calls:
        if (tool := tools.get(call.name)) is not None and tool.policy.final and results[call.id].ok:
            return results[call.id]
    return None


def _with_own_ids(message: Message, seen: set[str], step: int) -> Message:
    """Give a call without an id, or with one this run has seen, another: results, approval, idempotency go by it.

    One with a slash gets another too: a slash stands between the id of a call and those of the agent that it runs.
    """
    calls = []
    for number, call in enumerate(message.tool_calls, 1):
        own = call.id
        if not own or own in seen or "/" in own:
            own = f"call_{step}_{number}"
            while own in seen:
                own += "_"
        seen.add(own)
        calls.append(call if own is call.id else replace(call, id=own))
    return message if all(map(is_, calls, message.tool_calls)) else replace(message, tool_calls=tuple(calls))
