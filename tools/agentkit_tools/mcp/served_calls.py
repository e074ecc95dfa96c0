"""Calls of the functions of prompts and resources of an MCP server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.errors import ToolArgumentError
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext


async def called(tool: Tool, arguments: Mapping[str, str], deps: Any) -> Any:
    """Return the value of the function of a prompt or resource.

    Raises:
        MCPError: Arguments are invalid, or the function failed.
    """
    from mcp import MCPError
    from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

    call = ToolCall(os.urandom(8).hex(), tool.name, json.dumps(dict(arguments)))
    result = await tool.call(call, ToolContext(deps, "mcp", call.id))
    if result.ok:
        return result.value
    code = INTERNAL_ERROR
    if isinstance(result.error, ToolArgumentError):
        code = INVALID_PARAMS
    raise MCPError(code, str(result.message.text))
