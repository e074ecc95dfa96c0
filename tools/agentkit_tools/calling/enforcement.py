"""What a policy asks for around a call: approval, a limit on calls, a limit on concurrency, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from inspect import isawaitable, iscoroutine
from typing import Any
from weakref import WeakKeyDictionary

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.deadline import with_deadline
from agentkit_tools.calling.tool_policy import ToolPolicy
from agentkit_tools.calling.tool_result import ToolResult, describe_error
from agentkit_tools.errors import ToolArgumentError
from agentkit_tools.schemas.signature import Arguments
from agentkit_tools.tool_context import ToolContext

__all__ = ["Gates", "guarded", "needs_approval"]

_LONGEST_PAUSE = 30.0

Gates = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
"""One semaphore per event loop: a tool may be shared by agents in several threads."""


async def needs_approval(policy: ToolPolicy, arguments: Arguments, context: ToolContext[Any]) -> bool:
    """Return whether a person must agree to this call first; deciding takes no longer than the call itself may.

    Raises:
        DeadlineError: It did. A predicate that is not async runs where it is called, and nothing can stop it.
    """
    approval = policy.approval
    if not callable(approval):
        return approval == "always"
    verdict = approval(arguments, context)
    if iscoroutine(verdict) and policy.timeout is not None:
        verdict = with_deadline(verdict, policy.timeout)
    return bool(await verdict if isawaitable(verdict) else verdict)


async def guarded(
    policy: ToolPolicy,
    gates: Gates,
    call: ToolCall,
    context: ToolContext[Any],
    read: Callable[[], Arguments],
    attempt: Callable[[Arguments, ToolContext[Any]], Awaitable[ToolResult]],
) -> ToolResult:
    """Answer a call the way its policy says.

    `read` makes fresh arguments for every attempt, because a tool may change what it is given; where they are checked
    by code of the tool's own, it may find something wrong that it did not find before.
    """
    try:
        return await _guarded(policy, gates, call, context, read, attempt)
    except ToolArgumentError as error:
        return ToolResult(call.id, call.name, str(error), "error", error=error)


async def _guarded(
    policy: ToolPolicy,
    gates: Gates,
    call: ToolCall,
    context: ToolContext[Any],
    read: Callable[[], Arguments],
    attempt: Callable[[Arguments, ToolContext[Any]], Awaitable[ToolResult]],
) -> ToolResult:
    if policy.approval != "never" and not context.approved:
        arguments = read()
        try:
            ask = await needs_approval(policy, arguments, context)
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise
        except BaseException as error:  # SystemExit is no decision either
            return _denied(call, f"whether it needs approval could not be decided: {describe_error(error)}", error)
        if ask:
            return _denied(call, "it needs the approval of a person, and there is none.")
    if policy.max_calls is not None and context.calls is not None:
        made = context.calls.get(call.name, 0)
        if made >= policy.max_calls:
            return _denied(call, f"it may be called at most {policy.max_calls} times in one run. Go on without it.")
        context.calls[call.name] = made + 1
    async with _gate(policy, gates) or nullcontext():
        while True:
            result = await attempt(read(), context)
            if context.attempt > policy.retries or not isinstance(result.error, policy.retry_on):
                return result
            await asyncio.sleep(min(policy.backoff * 2 ** (context.attempt - 1), _LONGEST_PAUSE))
            context = context.again()


def _gate(policy: ToolPolicy, gates: Gates) -> asyncio.Semaphore | None:
    if policy.concurrency is None:
        return None
    loop = asyncio.get_running_loop()
    gate = gates.get(loop)
    if gate is None:
        gate = gates[loop] = asyncio.Semaphore(policy.concurrency)
    return gate


def _denied(call: ToolCall, why: str, error: BaseException | None = None) -> ToolResult:
    return ToolResult(call.id, call.name, f"{call.name} was not called: {why}", "denied", error=error)
