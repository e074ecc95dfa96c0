"""Tools a model can call: made from functions, validated before they run, always ending in a result."""

from __future__ import annotations

from agentkit_tools.context import ToolContext
from agentkit_tools.errors import ArgumentProblem, ToolArgumentError, ToolDefinitionError, ToolError
from agentkit_tools.export import to_anthropic, to_mcp, to_openai, to_text
from agentkit_tools.names import wire_name
from agentkit_tools.policy import Approval, PolicyOptions, ToolPolicy
from agentkit_tools.result import Content, ToolResult, ToolStatus
from agentkit_tools.signature import Arguments
from agentkit_tools.threads import abandoned_threads
from agentkit_tools.tool import Tool, tool, unknown_tool
from agentkit_tools.toolset import Toolset, TurnTools, by_name
from agentkit_tools.wrapped import Around, Proceed, WrappedTool

__all__ = [
    "Approval",
    "ArgumentProblem",
    "Arguments",
    "Around",
    "Content",
    "PolicyOptions",
    "Proceed",
    "Tool",
    "ToolArgumentError",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolPolicy",
    "ToolResult",
    "ToolStatus",
    "Toolset",
    "TurnTools",
    "WrappedTool",
    "abandoned_threads",
    "by_name",
    "to_anthropic",
    "to_mcp",
    "to_openai",
    "to_text",
    "tool",
    "unknown_tool",
    "wire_name",
]
