"""Tool descriptions in the form each kind of model wants them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.errors import check_types
from agentkit_prompts.schemas.provider_tools import anthropic_form, gemini_form, openai_form
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool

__all__ = ["to_anthropic", "to_gemini", "to_mcp", "to_openai", "to_text"]


def to_openai(tool: Tool | ToolSpec) -> dict[str, Any]:
    """Return an entry of `tools` of a chat completion request; strict when the tool is, see `Tool.strict`.

    A description of more than 1,024 characters is cut, with a `ToolFormWarning`.
    """
    return dict(openai_form(_spec(tool)))


def to_anthropic(tool: Tool | ToolSpec) -> dict[str, Any]:
    """Return an entry of `tools` of an Anthropic messages request.

    Names of properties that the API refuses are replaced; the tool takes them in arguments as its own. A strict tool is
    strict where its parameters fit into what is enforced there; otherwise there is a `ToolFormWarning`.
    """
    return dict(anthropic_form(_spec(tool)))


def to_gemini(tool: Tool | ToolSpec) -> dict[str, Any]:
    """Return a function declaration for Gemini, in its subset of OpenAPI; without `parameters` where it has no params.

    Names of properties that the API refuses are replaced; the tool takes them in arguments as its own. References are
    written out, and what the subset has no words for is left out: arguments are validated by the whole schema still.
    """
    return dict(gemini_form(_spec(tool)))


def to_mcp(tool: Tool | ToolSpec) -> dict[str, Any]:
    """Return an entry of the answer to MCP's `tools/list`."""
    spec = _spec(tool)
    return {"name": spec.name, "description": spec.description, "inputSchema": spec.parameters}


def to_text(tools: Iterable[Tool | ToolSpec]) -> str:
    """Return tools as JSON text for a prompt, one line each; the same tools give the same bytes."""
    check_types(ToolDefinitionError, "to_text", tools=(tools, Iterable, "tools"))
    return "\n".join(json.dumps(to_openai(tool), ensure_ascii=False) for tool in tools)


def _spec(tool: Tool | ToolSpec) -> ToolSpec:
    check_types(ToolDefinitionError, "export", tool=(tool, (Tool, ToolSpec), "a Tool or a ToolSpec"))
    if isinstance(tool, Tool):
        return tool.spec
    return tool
