"""The agent loop: a generator that does no I/O.

It yields effects and receives their results; drivers perform them. Everything an agent decides is on this page.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, Generic

from agentkit.chain import Chain, Output
from agentkit.errors import LimitExceeded, OutputError
from agentkit.models.model import Reply, Usage
from agentkit.recaller import Found
from agentkit.run.effects import Append, AskApproval, CallModel, CallTools, Effect, Recall
from agentkit.run.limits import Limits
from agentkit_prompts.composition.compose import Memo
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

__all__ = ["Interrupted", "RunResult", "remembering", "run_loop", "visible"]

_NOBODY = frozenset[str]()


@dataclass(frozen=True, slots=True)
class RunResult(Generic[Output]):
    """How a run ended."""

    output: Output
    """The answer."""
    messages: tuple[Message, ...]
    """What the run added to the conversation, the user's message first."""
    composition: Composition
    """The last thing that was sent."""
    usage: Usage
    """Tokens of all model calls, those of agents that tools ran among them."""
    steps: int
    """Model calls."""
    finish_reason: str
    """Why the model stopped: `stop`, or `length` when the answer was cut; see `Reply`."""
    run_id: str


class Interrupted(BaseException):
    """Thrown into the loop by a driver when a round of tool calls is cut short: answers with one last `Append`."""

    def __init__(self, results: Sequence[ToolResult]) -> None:
        super().__init__()
        self.results = tuple(results)


def run_loop(
    chain: Chain[Output],
    ctx: PromptContext,
    tools: Mapping[str, Tool],
    limits: Limits,
    *,
    run_id: str,
    recalls: bool,
    memo: Memo,
) -> Generator[Effect, Any, RunResult[Output]]:
    """Answer one user input."""
    if recalls:
        ctx = remembering(ctx, (yield Recall(ctx.user_input.text, visible(chain, ctx, memo))))
    composition = chain.compose(ctx, memo=memo)  # before anything is kept: a prompt that cannot render costs nothing
    messages: tuple[Message, ...] = (ctx.user_input.message,)
    yield Append(messages, f"{run_id}:0")
    usage, repairs = Usage(), 0
    seen: set[str] = set()  # ids of tool calls
    for step in range(1, limits.steps + 1):
        if step > 1:
            composition = chain.compose(ctx, memo=memo)
        reply: Reply = yield CallModel(composition, step)
        usage = usage + reply.usage
        message = reply.message
        if message.tool_calls:
            message = _with_own_ids(message, seen, step)
            if limits.tool_calls is not None and len(seen) > limits.tool_calls:
                raise LimitExceeded("tool_calls", limits.tool_calls, "allow more, or offer fewer tools", messages)
            asking = _asking(message.tool_calls, tools)
            approved: frozenset[str] = (yield AskApproval(asking, step)) if asking else _NOBODY
            try:
                results, inside = yield CallTools(message.tool_calls, step, approved)
            except Interrupted as cut:
                yield Append((message, *[result.message for result in cut.results]), f"{run_id}:{step}")
                raise
            if inside is not None:
                usage = usage + inside
            fresh = (message, *[result.message for result in results])
        else:
            try:
                output = chain.parse(reply)
            except OutputError as error:
                if repairs == limits.repairs:
                    yield Append((message,), f"{run_id}:{step}")
                    raise
                repairs += 1
                fresh = (message, Message("user", f"{error}. Answer again, with valid JSON only."))
            else:
                yield Append((message,), f"{run_id}:{step}")
                return RunResult(output, (*messages, message), composition, usage, step, reply.finish_reason, run_id)
        yield Append(fresh, f"{run_id}:{step}")
        messages += fresh
        if limits.tokens is not None and usage.input_tokens + usage.output_tokens > limits.tokens:
            raise LimitExceeded("tokens", limits.tokens, "allow more, or shorten the prompt", messages)
        traffic = ctx.intermediate
        ctx = ctx.evolve(intermediate=traffic.append(*fresh) if len(traffic) else Conversation(fresh))
    raise LimitExceeded("steps", limits.steps, "the model did not come to an answer; allow more", messages)


def visible(chain: Chain[Any], ctx: PromptContext, memo: Memo | None = None) -> int | None:
    """Return how many messages of the conversation a prompt shows before anything is recalled; None for all."""
    if chain.budget is None or not len(ctx.conversation):
        return None
    return len(chain.compose(ctx, memo=memo).conversation)


def remembering(ctx: PromptContext, found: Found) -> PromptContext:
    """Return the context with what was recalled; facts come after those it has."""
    return ctx.evolve(documents=found.documents, knowledge=(*ctx.knowledge, *found.knowledge))


def _asking(calls: tuple[ToolCall, ...], tools: Mapping[str, Tool]) -> tuple[ToolCall, ...]:
    """Return the calls of tools that may need approval; a tool denies what was not approved."""
    return tuple([call for call in calls if call.name in tools and tools[call.name].policy.approval != "never"])


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
