"""Choices among the tool calls of one reply."""

from __future__ import annotations

from collections.abc import Mapping

from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool


def calls_with_approval(calls: tuple[ToolCall, ...], tools: Mapping[str, Tool]) -> tuple[ToolCall, ...]:
    """Return the calls of tools whose policy can require approval."""
    return tuple([call for call in calls if call.name in tools and tools[call.name].policy.approval != "never"])


def final_result(message: Message, tools: Mapping[str, Tool], results: Mapping[str, ToolResult]) -> ToolResult | None:
    """Return the first successful result of a tool with `final=True`, which ends the run, or None."""
    for call in message.tool_calls:
        tool = tools.get(call.name)
        if tool is not None and tool.policy.final and results[call.id].ok:
            return results[call.id]
    return None
