"""Whether a person must agree to a call first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from agentkit_tools.calling.deadline import outcome
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit_tools.schemas.argument_reader import Arguments

__all__ = ["Approval", "needs_approval"]

Approval: TypeAlias = (
    Literal["never", "always"] | Callable[[Mapping[str, Any], ToolContext[Any]], bool | Awaitable[bool]]
)
"""Whether a person must agree to a call first; a predicate receives the validated arguments and the context."""


async def needs_approval(
    approval: Approval, arguments: Arguments, context: ToolContext[Any], timeout: float | None
) -> bool:
    """Return whether a person must agree to this call first; deciding takes no longer than `timeout` seconds.

    Raises:
        DeadlineError: It did. A predicate that is not async runs where it is called, and nothing can stop it.
    """
    if not callable(approval):
        return approval == "always"
    # A sync predicate runs on the event loop, where no time limit can stop it.
    verdict: Any = approval(arguments, context)
    if isawaitable(verdict):
        verdict, error = await outcome(verdict, timeout)
        # The call was not cancelled: code inside the predicate was.
        if isinstance(error, asyncio.CancelledError):
            raise RuntimeError("the predicate was cancelled from inside") from error
        if error is not None:
            raise error
    return bool(verdict)
