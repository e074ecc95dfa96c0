"""Tool descriptions in the form each kind of model wants them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_tools.tool import Tool

__all__ = ["to_anthropic", "to_mcp", "to_openai", "to_text"]


def to_openai(tool: Tool | ToolSpec) -> dict[str, Any]:
    """Return an entry of `tools` of a chat completion request; strict when the tool is, see `Tool.strict`."""
    spec = _spec(tool)
    function: dict[str, Any] = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    if spec.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def to_anthropic(tool: Tool | ToolSpec) -> dict[str, Any]:
    """Return an entry of `tools` of an Anthropic messages request."""
    spec = _spec(tool)
    return {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}


def to_mcp(tool: Tool | ToolSpec) -> dict[str, Any]:
    """Return an entry of the answer to MCP's `tools/list`."""
    spec = _spec(tool)
    return {"name": spec.name, "description": spec.description, "inputSchema": spec.parameters}


def to_text(tools: Iterable[Tool | ToolSpec]) -> str:
    """Return tools as JSON text for a prompt, one line each; the same tools give the same bytes."""
    return "\n".join(json.dumps(to_openai(tool), ensure_ascii=False) for tool in tools)


def _spec(tool: Tool | ToolSpec) -> ToolSpec:
    return tool.spec if isinstance(tool, Tool) else tool
