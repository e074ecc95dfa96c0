"""Tools in the form of a chat-completions request, read and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentkit_prompts.context.frozen import FrozenDict
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.json_problems import text_of_json
from agentkit_prompts.errors import Problem, Problems, PromptError
from agentkit_prompts.lists import is_list


def openai_tool(tool: ToolSpec) -> FrozenDict:
    """Return one tool in the form that chat templates read.

    Raises:
        PromptError: The tool is a native tool of a provider, which no other model can call.
    """
    if tool.native is not None:
        raise PromptError(
            f"tool {tool.name} runs at its provider, which is asked for it by {json.dumps(tool.native):.200}: a model"
            " that is asked through a chat template cannot call it; leave it out",
            name=tool.name,
        )
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    if tool.strict:
        function["strict"] = True
    return FrozenDict(type="function", function=FrozenDict(function))


def read_tools(tools: object, problems: Problems, *, needs_name: bool = True) -> list[dict[str, Any]]:
    """Return copies of tools as plain dicts; invalid tools become problems and are left out.

    Args:
        tools: List of `ToolSpec` objects or mappings. A mapping is a tool in the chat form, or the function in it.
        problems: List to which problems are added.
        needs_name: True if a tool without a name is a problem.
    """
    if not is_list(tools):
        problems.append(Problem("tools", f"expected a list of tools, got {type(tools).__name__}"))
        return []
    copies: list[dict[str, Any]] = []
    for index, tool in enumerate(tools):
        tool_copy = _read_tool(tool, f"tools[{index}]", problems, needs_name=needs_name)
        if tool_copy is not None:
            copies.append(tool_copy)
    return copies


def _read_tool(tool: object, where: str, problems: Problems, *, needs_name: bool) -> dict[str, Any] | None:
    """Return a copy of a tool; or None, with a problem, if it is invalid."""
    if isinstance(tool, ToolSpec):
        tool = openai_tool(tool)
    function = _function_of(tool)
    if not isinstance(function, Mapping):
        reason = f"expected a ToolSpec or a mapping with a name, got {type(function).__name__}"
        problems.append(Problem(where, reason))
        return None
    if needs_name and not _is_name(function.get("name")):
        problems.append(Problem(where, "has no name"))
    text = text_of_json(tool, where, problems)
    if text is None:
        return None
    if needs_name and not isinstance(function.get("parameters") or {}, Mapping):
        problems.append(Problem(where, "its parameters must be a JSON Schema object"))
    copy: dict[str, Any] = json.loads(text)
    return copy


def _function_of(tool: object) -> object:
    """Return the mapping with the name and parameters of a tool: its `function`, or the tool itself."""
    if isinstance(tool, Mapping):
        return tool.get("function", tool)
    return tool


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""
