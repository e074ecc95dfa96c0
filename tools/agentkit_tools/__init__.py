"""Tools a model can call: made from functions, validated before they run, always ending in a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit_prompts.lazy import lazy_exports
from agentkit_tools.tool import Tool, tool, unknown_tool

if TYPE_CHECKING:
    from agentkit_tools.context import ToolContext
    from agentkit_tools.errors import (
        ArgumentProblem,
        MCPServerError,
        MCPServerLost,
        ToolArgumentError,
        ToolDefinitionError,
        ToolError,
        ToolFailure,
    )
    from agentkit_tools.export import to_anthropic, to_mcp, to_openai, to_text
    from agentkit_tools.mcp import MCPToolset
    from agentkit_tools.mcp_server import mcp_server, serve_mcp
    from agentkit_tools.names import wire_name
    from agentkit_tools.policy import Approval, PolicyOptions, ToolPolicy
    from agentkit_tools.ready.arithmetic import calculate
    from agentkit_tools.ready.clock import time_tool
    from agentkit_tools.ready.files import file_tools
    from agentkit_tools.ready.http import http_tool
    from agentkit_tools.result import Content, ToolResult, ToolStatus
    from agentkit_tools.signature import Arguments
    from agentkit_tools.threads import abandoned_threads
    from agentkit_tools.toolset import Toolset, TurnTools, by_name
    from agentkit_tools.wrapped import Around, Proceed, WrappedTool

__all__ = [
    "Approval",
    "ArgumentProblem",
    "Arguments",
    "Around",
    "Content",
    "MCPServerError",
    "MCPServerLost",
    "MCPToolset",
    "PolicyOptions",
    "Proceed",
    "Tool",
    "ToolArgumentError",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolFailure",
    "ToolPolicy",
    "ToolResult",
    "ToolStatus",
    "Toolset",
    "TurnTools",
    "WrappedTool",
    "abandoned_threads",
    "by_name",
    "calculate",
    "file_tools",
    "http_tool",
    "mcp_server",
    "serve_mcp",
    "time_tool",
    "to_anthropic",
    "to_mcp",
    "to_openai",
    "to_text",
    "tool",
    "unknown_tool",
    "wire_name",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "agentkit_tools.context": "ToolContext",
        "agentkit_tools.errors": "ArgumentProblem MCPServerError MCPServerLost ToolArgumentError ToolDefinitionError"
        " ToolError ToolFailure",
        "agentkit_tools.export": "to_anthropic to_mcp to_openai to_text",
        "agentkit_tools.mcp": "MCPToolset",
        "agentkit_tools.mcp_server": "mcp_server serve_mcp",
        "agentkit_tools.names": "wire_name",
        "agentkit_tools.policy": "Approval PolicyOptions ToolPolicy",
        "agentkit_tools.ready.arithmetic": "calculate",
        "agentkit_tools.ready.clock": "time_tool",
        "agentkit_tools.ready.files": "file_tools",
        "agentkit_tools.ready.http": "http_tool",
        "agentkit_tools.result": "Content ToolResult ToolStatus",
        "agentkit_tools.signature": "Arguments",
        "agentkit_tools.threads": "abandoned_threads",
        "agentkit_tools.toolset": "Toolset TurnTools by_name",
        "agentkit_tools.wrapped": "Around Proceed WrappedTool",
    },
)
