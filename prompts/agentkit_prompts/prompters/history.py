"""What a caller may give as history and tools, read into messages and tool specs; all problems are named at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from agentkit_prompts.composition.targets.openai import openai_tool
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Text
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.errors import PrompterError, PromptError, nearest

__all__ = ["GivenTool", "History", "Tools", "read_history", "read_message", "read_tools", "tool_spec"]

History: TypeAlias = Conversation | Sequence[Message | Mapping[str, Any] | Sequence[str]]
"""Messages, or `[question, answer]` pairs; both may be mixed."""
GivenTool: TypeAlias = Mapping[str, Any] | ToolSpec
Tools: TypeAlias = Sequence[GivenTool]
"""Tool specs, or `{"type": "function", "function": {"name": ..., "description": ..., "parameters": {...}}}`."""

_MESSAGE_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")


def read_history(given: History | None) -> list[Message]:
    """Return the messages of a history.

    Raises:
        PrompterError: Names every item that is no message and no pair, and a tool call that has no result.
    """
    if given is None:
        return []
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise PrompterError(
            f"history: expected a list of [question, answer] pairs or of messages, got {type(given).__name__}"
        )
    messages: list[Message] = []
    problems: list[str] = []
    for index, item in enumerate(given):
        try:
            messages += _pair(item) if isinstance(item, list | tuple) else [read_message(item)]
        except PromptError as error:
            problems.append(f"history[{index}]: {error}")
    if not problems and len(Conversation(messages).complete()) != len(messages):
        problems.append("history: a tool call lacks its result, or a tool result its call; give both or neither")
    if problems:
        raise PrompterError("; ".join(problems))
    return messages


def _pair(item: Sequence[Any]) -> list[Message]:
    if len(item) != 2 or not all(isinstance(text, str) for text in item):
        shown = ", ".join(type(text).__name__ for text in item[:4])
        raise PrompterError(f"expected two texts, [question, answer], got [{shown}{', ...' if len(item) > 4 else ''}]")
    return [Message("user", item[0]), Message("assistant", item[1])]


def read_message(item: Any) -> Message:
    """Return a message, or the mapping of a chat request, as a message.

    Raises:
        PromptError: It is neither, or holds something that a message has no place for.
    """
    if isinstance(item, Message):
        return item
    if not isinstance(item, Mapping):
        raise PrompterError(f"expected a message, its dict, or a [question, answer] pair, got {type(item).__name__}")
    unknown = [str(key) for key in item if key not in _MESSAGE_KEYS]
    if unknown:
        raise PrompterError(f"a message has no {', '.join(map(repr, unknown))}{nearest(unknown[0], _MESSAGE_KEYS)}")
    if "role" not in item:
        raise PrompterError("a message needs a role: system, user, assistant or tool")
    calls = item.get("tool_calls") or ()
    if isinstance(calls, str | Mapping) or not isinstance(calls, Sequence):
        raise PrompterError(f"tool_calls: expected a list, got {type(calls).__name__}")
    return Message(
        item["role"],
        _content(item.get("content")),
        tuple(_call(call) for call in calls),
        item.get("tool_call_id"),
        item.get("name"),
    )


def _content(content: Any) -> Any:
    """Turn the text parts of a chat request into text parts; a message checks the rest."""
    if not isinstance(content, list | tuple):
        return content
    return tuple(
        Text(part["text"])
        if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
        else part
        for part in content
    )


def _call(call: Any) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise PrompterError('tool_calls: expected {"id": ..., "function": {"name": ..., "arguments": ...}}')
    arguments = function.get("arguments", "{}")
    return ToolCall(
        str(call.get("id") or ""), function["name"], arguments if isinstance(arguments, str) else _json(arguments)
    )


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise PrompterError(f"this cannot be written as JSON: {error}") from error


def read_tools(given: Tools | None) -> list[Mapping[str, Any]]:
    """Return the tools as a chat request holds them: copies of what was given, key by key.

    Raises:
        PrompterError: Names every tool that is not one, or that JSON cannot write, and every name that is there twice.
    """
    if given is None:
        return []
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise PrompterError(f"tools: expected a list of tools, got {type(given).__name__}")
    tools: list[Mapping[str, Any]] = []
    problems: list[str] = []
    for index, tool in enumerate(given):
        try:
            tools.append(json.loads(_json(openai_tool(tool) if isinstance(tool, ToolSpec) else _checked(tool))))
        except PrompterError as error:
            problems.append(f"tools[{index}]: {error}")
    names = [tool["function"]["name"] for tool in tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        problems.append(f"tools: {', '.join(map(repr, twice))} is there more than once")
    if problems:
        raise PrompterError("; ".join(problems))
    return tools


def _checked(tool: Any) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        raise PrompterError('expected {"type": "function", "function": {"name": ...}} or a ToolSpec')
    if not isinstance(function.get("parameters") or {}, Mapping):
        raise PrompterError("its parameters are a JSON Schema object")
    return tool  # type: ignore[no-any-return]


def tool_spec(tool: Mapping[str, Any]) -> ToolSpec:
    """Return the spec of a tool that `read_tools` returned.

    The document writes `required` beside `parameters`; it belongs inside.
    """
    function = tool["function"]
    parameters = function.get("parameters")
    if "required" in function and "required" not in (parameters or {}):
        parameters = {"type": "object", "properties": {}, **(parameters or {}), "required": function["required"]}
    description = function.get("description")
    return ToolSpec(
        function["name"],
        description if isinstance(description, str) else "",
        parameters,
        strict=function.get("strict") is True,
    )
