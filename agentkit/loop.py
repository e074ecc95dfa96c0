"""The agent loop: a generator that does no I/O.

It yields effects and receives their results; drivers perform them. Everything an agent decides is on this page.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from agentkit_prompts.compose import Memo
from agentkit_prompts.composition import Composition
from agentkit_prompts.context import PromptContext
from agentkit_prompts.conversation import Conversation
from agentkit_prompts.messages import Message, ToolCall
from agentkit_tools.result import ToolResult
from agentkit_tools.tool import Tool

from agentkit.chain import Chain, Output
from agentkit.effects import Append, AskApproval, CallModel, CallTools, Effect, Recall
from agentkit.errors import LimitExceeded, OutputError
from agentkit.models.base import Reply, Usage

__all__ = ["Interrupted", "Limits", "RunResult", "run_loop"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use at most. None means no limit."""

    steps: int = 16
    """Model calls."""
    tool_calls: int | None = None
    """Tool calls."""
    tokens: int | None = None
    """Input and output tokens, as the model reports them."""
    seconds: float | None = None
    """Wall time; the run is cancelled then."""
    repairs: int = 2
    """Turns in which the model may mend an answer that is not the output type."""


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
    """Tokens of all model calls."""
    steps: int
    """Model calls."""
    run_id: str


class Interrupted(BaseException):
    """Thrown into the loop by a driver that is being cancelled: what it has may still be kept, then the run ends."""

    def __init__(self, results: Sequence[ToolResult] = ()) -> None:
        super().__init__()
        self.results = tuple(results)


def run_loop(
    chain: Chain[Output],
    ctx: PromptContext,
    tools: Mapping[str, Tool[..., Any]],
    limits: Limits,
    *,
    run_id: str,
    recalls: bool,
    memo: Memo,
) -> Generator[Effect, Any, RunResult[Output]]:
    """Answer one user input."""
    if recalls:
        ctx = ctx.evolve(documents=(yield Recall(ctx.user_input.text)))
    composition = chain.compose(ctx, memo=memo)  # before anything is written: a prompt that cannot render costs nothing
    messages: tuple[Message, ...] = (ctx.user_input.message,)
    yield Append(messages, f"{run_id}:0")
    usage = Usage()
    repairs = calls = 0
    traffic = Conversation()
    for step in range(1, limits.steps + 1):
        if step > 1:
            composition = chain.compose(ctx, memo=memo)
        reply: Reply = yield CallModel(composition, step)
        usage = usage + reply.usage
        message = reply.message
        fresh: tuple[Message, ...] = (message,)
        if message.tool_calls:
            calls += len(message.tool_calls)
            if limits.tool_calls is not None and calls > limits.tool_calls:
                raise LimitExceeded(
                    "tool_calls", limits.tool_calls, "allow more, or give the model fewer tools", messages
                )
            try:
                results = yield from _call_tools(message.tool_calls, tools, step)
            except Interrupted as stop:
                if stop.results:
                    yield Append((message, *(result.message for result in stop.results)), f"{run_id}:{step}")
                raise
            fresh = (message, *(result.message for result in results))
        else:
            try:
                output = chain.parse(reply)
            except OutputError as error:
                if repairs >= limits.repairs:
                    raise
                repairs += 1
                fresh = (message, Message("user", f"{error}. Answer again with valid JSON only."))
            else:
                yield Append(fresh, f"{run_id}:{step}")
                return RunResult(output, messages + fresh, composition, usage, step, run_id)
        yield Append(fresh, f"{run_id}:{step}")
        messages += fresh
        if limits.tokens is not None and usage.input_tokens + usage.output_tokens > limits.tokens:
            raise LimitExceeded("tokens", limits.tokens, "raise the limit or shorten the prompt", messages)
        traffic = traffic.append(*fresh)
        ctx = ctx.evolve(intermediate=traffic)
    raise LimitExceeded(
        "steps", limits.steps, "the model keeps calling tools; raise the limit or mend the prompt", messages
    )


def _call_tools(
    calls: tuple[ToolCall, ...], tools: Mapping[str, Tool[..., Any]], step: int
) -> Generator[Effect, Any, Sequence[ToolResult]]:
    """Ask for approval where a tool wants it, then run the calls; a tool denies what was not approved."""
    asking = tuple(call for call in calls if call.name in tools and tools[call.name].policy.approval != "never")
    approved: frozenset[str] = (yield AskApproval(asking, step)) if asking else frozenset()
    return (yield CallTools(calls, step, approved))
