"""Tools a model can call: made from functions, validated before they run, always ending in a result."""

from __future__ import annotations

from agentkit_tools.context import ToolContext
from agentkit_tools.errors import ArgumentProblem, ToolArgumentError, ToolDefinitionError, ToolError
from agentkit_tools.policy import Approval, PolicyOptions, ToolPolicy
from agentkit_tools.result import Content, ToolResult, ToolStatus
from agentkit_tools.signature import Arguments
from agentkit_tools.threads import abandoned_threads
from agentkit_tools.tool import Tool, tool, unknown_tool
from agentkit_tools.toolset import by_name

__all__ = [
    "Approval",
    "ArgumentProblem",
    "Arguments",
    "Content",
    "PolicyOptions",
    "Tool",
    "ToolArgumentError",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolPolicy",
    "ToolResult",
    "ToolStatus",
    "abandoned_threads",
    "by_name",
    "tool",
    "unknown_tool",
]
