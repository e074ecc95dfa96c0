"""`ServedPrompts`: prompts of an MCP server, from functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Text
from agentkit_prompts.names import nearest
from agentkit_tools.calling.result_content import to_content
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.mcp.content import from_result
from agentkit_tools.mcp.served_calls import called
from agentkit_tools.mcp.served_list import ServedList
from agentkit_tools.tool import Tool

if TYPE_CHECKING:
    from mcp_types import (
        CompleteRequestParams,
        CompleteResult,
        GetPromptRequestParams,
        GetPromptResult,
        ListPromptsResult,
    )

_MAX_COMPLETIONS = 100
"""Maximum number of completions, as the protocol requires."""


class ServedPrompts:
    """Handlers of the requests of clients for prompts.

    A prompt is a function with text parameters that returns a text, a part, a message, or a list of them.

    Raises:
        ToolDefinitionError: A function cannot be described, or two functions have the same name.
    """

    def __init__(self, prompts: Iterable[Tool | Callable[..., Any]], deps: Any) -> None:
        self._prompts = ServedList(prompts)
        self._deps = deps

    async def list_prompts(self, ctx: Any, params: Any) -> ListPromptsResult:
        from mcp_types import ListPromptsResult

        entries = []
        for prompt in self._prompts.tools.values():
            schema = prompt.spec.parameters
            required = schema.get("required", ())
            arguments = [
                {"name": name, "description": field.get("description"), "required": name in required}
                for name, field in schema.get("properties", {}).items()
            ]
            entries.append({"name": prompt.name, "description": prompt.description, "arguments": arguments})
        return ListPromptsResult.model_validate({"prompts": entries})

    async def get(self, ctx: Any, params: GetPromptRequestParams) -> GetPromptResult:
        from mcp_types import GetPromptResult

        prompt = self._prompt(params.name)
        value = await called(prompt, params.arguments or {}, self._deps)
        values = value if isinstance(value, list | tuple) else [value]
        messages = [message for each in values for message in _messages(each)]
        return GetPromptResult.model_validate({"description": prompt.description, "messages": messages})

    async def complete(self, ctx: Any, params: CompleteRequestParams) -> CompleteResult:
        """Return the allowed values of an argument of a prompt that start with the typed text."""
        from mcp_types import CompleteResult

        values: list[str] = []
        if params.ref.type == "ref/prompt":
            fields = self._prompt(params.ref.name).spec.parameters.get("properties", {})
            allowed = fields.get(params.argument.name, {}).get("enum", ())
            values = [str(value) for value in allowed if str(value).startswith(params.argument.value)]
        completion = {"values": values[:_MAX_COMPLETIONS], "total": len(values), "hasMore": False}
        if len(values) > _MAX_COMPLETIONS:
            completion["hasMore"] = True
        return CompleteResult.model_validate({"completion": completion})

    def _prompt(self, name: str) -> Tool:
        from mcp import MCPError
        from mcp_types import INVALID_PARAMS

        prompts = self._prompts.tools
        if name not in prompts:
            raise MCPError(INVALID_PARAMS, f"unknown prompt {name!r:.200}{nearest(name, prompts)}")
        return prompts[name]


def _messages(value: Any) -> list[dict[str, Any]]:
    """Return the messages of MCP for a value: one message for each part."""
    role, content = "user", value
    if isinstance(value, Message):
        content = value.content
        if value.role == "assistant":
            role = "assistant"
    parts: Any = content
    if isinstance(content, Text | Media):
        parts = (content,)
    elif not isinstance(content, str | tuple):
        parts = to_content(content)
    blocks = from_result(ToolResult("", "", parts))["content"]
    return [{"role": role, "content": block} for block in blocks]
