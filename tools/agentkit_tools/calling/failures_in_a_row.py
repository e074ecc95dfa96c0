"""Limit on consecutive failures, after which a tool is unavailable for the rest of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.result_content import with_note
from agentkit_tools.calling.tool_policy import ToolPolicy
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool_context import ToolContext

_FAILURES = ("error", "timeout")


def unavailable(policy: ToolPolicy, call: ToolCall, context: ToolContext[Any]) -> ToolResult | None:
    """Return the result of a call of a tool that reached its limit of failures; None if the tool is available."""
    if (
        policy.max_consecutive_failures is None
        or context.calls is None
        or context.calls.get(_key(call), 0) < policy.max_consecutive_failures
    ):
        return None
    return ToolResult(call.id, call.name, f"{call.name} was not called: {_reason(policy)}", "unavailable")


def after(result: ToolResult, policy: ToolPolicy, call: ToolCall, context: ToolContext[Any]) -> ToolResult:
    """Count the result of a call, and return the result. Its status is "unavailable" if it reaches the limit.

    A denied or cancelled call is neither a failure nor a success.
    """
    counts, key = context.calls, _key(call)
    if policy.max_consecutive_failures is None or counts is None:
        return result
    failures = counts.get(key, 0)
    # The success of a call that started before the tool became unavailable does not make the tool available again.
    if result.ok and failures < policy.max_consecutive_failures:
        counts.pop(key, None)
    if result.status not in _FAILURES:
        return result
    counts[key] = failures + 1
    if failures + 1 < policy.max_consecutive_failures:
        return result
    content = with_note(result.content, f"{call.name} is not available any more: {_reason(policy)}")
    return replace(result, content=content, status="unavailable")


def counts_after(results: Iterable[ToolResult]) -> dict[str, int]:
    """Return the `ToolContext.calls` of a resumed run from its earlier results, in order."""
    counts: dict[str, int] = {}
    for result in results:
        key = _key(result)
        if result.status not in ("denied", "cancelled"):
            counts[result.name] = counts.get(result.name, 0) + 1
        if result.ok:
            counts.pop(key, None)
        elif result.status in (*_FAILURES, "unavailable"):
            counts[key] = counts.get(key, 0) + 1
    return counts


def _key(call: ToolCall | ToolResult) -> str:
    return f"{call.name} (failures in a row)"


def _reason(policy: ToolPolicy) -> str:
    times = "once" if policy.max_consecutive_failures == 1 else f"{policy.max_consecutive_failures} times in a row"
    return f"it failed {times} in this run. Continue without it."
