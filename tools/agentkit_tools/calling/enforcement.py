"""Enforcement of the policy of a tool: approval, limits on calls and concurrency, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.deadline import DeadlineError, outcome
from agentkit_tools.calling.failures_in_a_row import after, unavailable
from agentkit_tools.calling.tool_policy import Approval, ToolPolicy
from agentkit_tools.calling.tool_result import ToolResult, unread
from agentkit_tools.errors import ToolArgumentError, describe_error
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit_tools.schemas.argument_reader import Arguments

_MAX_PAUSE = 30.0
"""Seconds between two attempts."""

Semaphores = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
"""A semaphore for each event loop: agents in several threads can share a tool."""


async def enforced(
    policy: ToolPolicy,
    semaphores: Semaphores,
    call: ToolCall,
    context: ToolContext[Any],
    read: Callable[[], Awaitable[Arguments]],
    attempt: Callable[[Arguments, ToolContext[Any]], Awaitable[ToolResult]],
) -> ToolResult:
    """Return the result of a call under its policy.

    `read` returns new arguments for every attempt, because a tool can change its arguments. If validators of the
    developer check them, `read` can fail although it succeeded before.
    """
    refused = unavailable(policy, call, context)
    if refused is not None:
        return refused
    try:
        denial = await _denial(policy, call, context, await read())
        if denial is not None:
            return denial
        async with _semaphore(policy, semaphores):
            result = await _repeated(policy, context, read, attempt)
    except (ToolArgumentError, DeadlineError) as error:
        # The result is no variable of this frame, to which the traceback of the error refers.
        return after(unread(call, error, policy), policy, call, context)
    return after(result, policy, call, context)


async def _denial(
    policy: ToolPolicy, call: ToolCall, context: ToolContext[Any], arguments: Arguments
) -> ToolResult | None:
    """Return the result of a denied call. An allowed call is counted, and None is returned."""
    if policy.approval != "never" and not context.approved:
        try:
            if await needs_approval(policy.approval, arguments, context, policy.timeout):
                return _denied(call, "it needs the approval of a person, which was not given.")
        except DeadlineError:
            text = f"whether it needs approval could not be decided within {policy.timeout:g} seconds"
            return _denied(call, text, TimeoutError(text))
        except Exception as error:
            return _denied(call, f"whether it needs approval could not be decided: {describe_error(error)}", error)
    if policy.max_calls is not None and context.calls is not None:
        return _denial_of_count(policy.max_calls, call, context.calls)
    return None


def _denial_of_count(max_calls: int, call: ToolCall, counts: dict[str, int]) -> ToolResult | None:
    """Count a call, or return its result if the limit is reached."""
    count = counts.get(call.name, 0)
    if count >= max_calls:
        return _denied(call, f"it may be called at most {max_calls} times in one run. Continue without it.")
    # Counted before the call, so that calls that run at the same time do not exceed the limit.
    counts[call.name] = count + 1
    return None


def _denied(call: ToolCall, reason: str, error: BaseException | None = None) -> ToolResult:
    return ToolResult(call.id, call.name, f"{call.name} was not called: {reason}", "denied", error=error)


async def needs_approval(
    approval: Approval, arguments: Arguments, context: ToolContext[Any], timeout: float | None
) -> bool:
    """True if a person must approve this call. The decision of an async predicate takes at most `timeout` seconds.

    Raises:
        DeadlineError: The predicate exceeded the limit.
    """
    if not callable(approval):
        return approval == "always"
    verdict, error = await outcome(_verdict(approval, arguments, context), timeout)
    # The call was not cancelled: code inside the predicate was.
    if isinstance(error, asyncio.CancelledError):
        raise RuntimeError("the predicate was cancelled from inside") from error
    if error is None:
        return verdict is True
    if isinstance(error, Exception):
        raise error
    raise RuntimeError(describe_error(error)) from error


async def _verdict(predicate: Callable[..., Any], arguments: Arguments, context: ToolContext[Any]) -> bool:
    # A sync predicate runs on the event loop, where no time limit can stop it.
    verdict = predicate(arguments, context)
    if isawaitable(verdict):
        verdict = await verdict
    return bool(verdict)


async def _repeated(
    policy: ToolPolicy,
    context: ToolContext[Any],
    read: Callable[[], Awaitable[Arguments]],
    attempt: Callable[[Arguments, ToolContext[Any]], Awaitable[ToolResult]],
) -> ToolResult:
    """Call the function until it succeeds or no retry is left."""
    while True:
        # Each attempt reads its arguments again: the previous attempt can have changed them.
        result = await attempt(await read(), context)
        if context.attempt > policy.retries or not isinstance(result.error, policy.retry_on):
            return result
        await asyncio.sleep(min(policy.backoff * 2 ** (context.attempt - 1), _MAX_PAUSE))
        context = replace(context, attempt=context.attempt + 1)


def _semaphore(policy: ToolPolicy, semaphores: Semaphores) -> AbstractAsyncContextManager[None]:
    if policy.concurrency is None:
        return nullcontext()
    return semaphores.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(policy.concurrency))
