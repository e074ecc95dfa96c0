"""What a policy asks for around a call: approval, a limit on calls, a limit on concurrency, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.approval import needs_approval
from agentkit_tools.calling.deadline import DeadlineError
from agentkit_tools.calling.tool_policy import ToolPolicy
from agentkit_tools.calling.tool_result import ToolResult, failed
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

    `read` makes fresh arguments for every attempt, because a tool may change what it is given; where they are checked
    by code of the tool's own, it may find something wrong that it did not find before.
    """

    def denied(why: str, error: BaseException | None = None) -> ToolResult:
        return ToolResult(call.id, call.name, f"{call.name} was not called: {why}", "denied", error=error)

    try:
        if policy.approval != "never" and not context.approved:
            arguments = await read()
            try:
                ask = await needs_approval(policy.approval, arguments, context, policy.timeout)
            except DeadlineError:
                late = f"whether it needs approval could not be decided within {policy.timeout:g} seconds"
                return denied(late, TimeoutError(late))
            except Exception as error:
                return denied(f"whether it needs approval could not be decided: {describe_error(error)}", error)
            if ask:
                return denied("it needs the approval of a person, which was not given.")
        if policy.max_calls is not None and context.calls is not None:
            made = context.calls.get(call.name, 0)
            if made >= policy.max_calls:
                return denied(f"it may be called at most {policy.max_calls} times in one run. Go on without it.")
            context.calls[call.name] = made + 1
        async with _semaphore(policy, semaphores):
            while True:
                result = await attempt(await read(), context)
                if context.attempt > policy.retries or not isinstance(result.error, policy.retry_on):
                    return result
                await asyncio.sleep(min(policy.backoff * 2 ** (context.attempt - 1), _MAX_PAUSE))
                context = replace(context, attempt=context.attempt + 1)
    except ToolArgumentError as error:
        return ToolResult(call.id, call.name, str(error), "error", error=error)
    except DeadlineError as error:
        return failed(call, error, policy)


def _semaphore(policy: ToolPolicy, semaphores: Semaphores) -> AbstractAsyncContextManager[None]:
    if policy.concurrency is None:
        return nullcontext()
    return semaphores.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(policy.concurrency))
