"""What a policy asks for around a call: approval, a limit on calls, a limit on concurrency, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.approval import needs_approval
from agentkit_tools.calling.deadline import DeadlineError
from agentkit_tools.calling.failures_in_a_row import after, unavailable
from agentkit_tools.calling.tool_policy import ToolPolicy
from agentkit_tools.calling.tool_result import ToolResult, unread
from agentkit_tools.errors import ToolArgumentError, describe_error
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit_tools.schemas.argument_reader import Arguments

__all__ = ["Semaphores", "enforced"]

_MAX_PAUSE = 30.0
"""Seconds between two attempts."""

Semaphores = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
"""One per event loop: a tool may be shared by agents in several threads."""


async def enforced(
    policy: ToolPolicy,
    semaphores: Semaphores,
    call: ToolCall,
    context: ToolContext[Any],
    read: Callable[[], Awaitable[Arguments]],
    attempt: Callable[[Arguments, ToolContext[Any]], Awaitable[ToolResult]],
) -> ToolResult:
    """Answer a call under its policy.

    `read` makes fresh arguments for every attempt, because a tool can change its arguments. If validators of the
    developer check them, `read` can fail although it succeeded before.
    """
    refused = unavailable(policy, call, context)
    if refused is not None:
        return refused
    try:
        result = await _allowed(policy, semaphores, call, context, read, attempt)
    except (ToolArgumentError, DeadlineError) as error:
        result = unread(call, error, policy)
    return after(result, policy, call, context)


async def _allowed(
    policy: ToolPolicy,
    semaphores: Semaphores,
    call: ToolCall,
    context: ToolContext[Any],
    read: Callable[[], Awaitable[Arguments]],
    attempt: Callable[[Arguments, ToolContext[Any]], Awaitable[ToolResult]],
) -> ToolResult:
    reason = await _refusal(policy, context, await read())
    if reason is None:
        reason = _count(policy, call, context)
    if reason is not None:
        text = f"{call.name} was not called: {reason.text}"
        return ToolResult(call.id, call.name, text, "denied", error=reason.error)
    async with _semaphore(policy, semaphores):
        return await _repeated(policy, context, read, attempt)


class _Refusal(NamedTuple):
    """Why a call is denied."""

    text: str
    error: BaseException | None = None


async def _refusal(policy: ToolPolicy, context: ToolContext[Any], arguments: Arguments) -> _Refusal | None:
    """Return why a call that needs approval is denied; None if it is approved or needs none."""
    if policy.approval == "never" or context.approved:
        return None
    try:
        is_needed = await needs_approval(policy.approval, arguments, context, policy.timeout)
    except DeadlineError:
        text = f"whether it needs approval could not be decided within {policy.timeout:g} seconds"
        return _Refusal(text, TimeoutError(text))
    except Exception as error:
        return _Refusal(f"whether it needs approval could not be decided: {describe_error(error)}", error)
    if is_needed:
        return _Refusal("it needs the approval of a person, which was not given.")
    return None


def _count(policy: ToolPolicy, call: ToolCall, context: ToolContext[Any]) -> _Refusal | None:
    """Count a call; return why it is denied if the run has made as many as it may."""
    if policy.max_calls is None or context.calls is None:
        return None
    count = context.calls.get(call.name, 0)
    if count >= policy.max_calls:
        return _Refusal(f"it may be called at most {policy.max_calls} times in one run. Go on without it.")
    # Counted before the call, so that calls that run at the same time do not exceed the limit.
    context.calls[call.name] = count + 1
    return None


async def _repeated(
    policy: ToolPolicy,
    context: ToolContext[Any],
    read: Callable[[], Awaitable[Arguments]],
    attempt: Callable[[Arguments, ToolContext[Any]], Awaitable[ToolResult]],
) -> ToolResult:
    """Call the function until it succeeds, or its retries are used up."""
    while True:
        # Every attempt reads its arguments again: the attempt before can have changed them.
        result = await attempt(await read(), context)
        if context.attempt > policy.retries or not isinstance(result.error, policy.retry_on):
            return result
        await asyncio.sleep(min(policy.backoff * 2 ** (context.attempt - 1), _MAX_PAUSE))
        context = replace(context, attempt=context.attempt + 1)


def _semaphore(policy: ToolPolicy, semaphores: Semaphores) -> AbstractAsyncContextManager[None]:
    if policy.concurrency is None:
        return nullcontext()
    return semaphores.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(policy.concurrency))
