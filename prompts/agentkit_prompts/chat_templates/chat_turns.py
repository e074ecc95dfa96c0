"""Messages as a chat template reads them: plain dicts of a role and text, checked.

What has to change for that is a new dict; the caller's own are only read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, cast

from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Media, Text
from agentkit_prompts.errors import ChatTemplateError, MediaError, nearest

__all__ = [
    "Messages",
    "Tools",
    "Turn",
    "calls_of",
    "json_text",
    "plain_turns",
    "read_prompt",
    "read_tools",
    "read_turns",
]

Messages: TypeAlias = Sequence[Message | Mapping[str, Any]]
Tools: TypeAlias = Sequence[ToolSpec | Mapping[str, Any]]

_MEDIA: dict[str, Literal["image", "audio", "video", "file"]] = {
    "audio": "audio",
    "audio_url": "audio",
    "file": "file",
    "image": "image",
    "image_url": "image",
    "input_audio": "audio",
    "input_file": "file",
    "input_image": "image",
    "video": "video",
    "video_url": "video",
}
"""Types of content parts that are not text -> what they hold."""
_SPEAKERS = frozenset(("system", "user", "assistant"))
_SOURCES = ("url", "file_url", "path", "filename")
"""Where a part in wire form names what it holds."""


class Turn(TypedDict):
    """One message: `tool_calls` in wire form, what is said is text."""

    role: str
    content: str
    name: NotRequired[str]
    tool_call_id: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]
    reasoning_content: NotRequired[str]
    is_silent: NotRequired[bool]
    """With `first_text`: a message with tool calls has no content at all, which LMDeploy tells from an empty one."""


class _Problem(Exception):
    """What is wrong with one message or tool; the caller knows which."""


def plain_turns(messages: Messages, roles: Collection[str]) -> list[Turn] | None:
    """Return the messages when each is a plain dict of one of `roles` and text, and nothing else; else None."""
    if type(messages) not in (list, tuple):
        return None
    try:
        turns = [
            message
            for message in messages
            if type(message) is dict
            and len(message) == 2
            and type(message["content"]) is str
            and message["role"] in roles
        ]
    except (KeyError, TypeError):
        return None
    return cast("list[Turn]", turns) if len(turns) == len(messages) else None


def read_prompt(prompt: object, template: str) -> str:
    """Return a prompt that is text.

    Raises:
        ChatTemplateError: It is something else.
    """
    if not isinstance(prompt, str):
        kind = type(prompt).__name__
        raise ChatTemplateError(f"{template}: expected a prompt as text, got {kind}; messages go to messages2prompt")
    return prompt


def read_turns(
    messages: Messages, template: str, roles: Collection[str] | None = None, *, first_text: bool = False
) -> list[Turn]:
    """Return the messages as turns, each a new dict.

    Args:
        messages: Messages, or mappings in the form of the chat-completions API.
        template: Name of the template, for errors.
        roles: The roles it knows; None takes any.
        first_text: Of a list of content parts keep the first text only, as LMDeploy does; otherwise all of them are
            joined, media as their alt text.

    Raises:
        ChatTemplateError: Names every message that cannot be read.
    """
    if isinstance(messages, str | bytes | Mapping | Message) or not isinstance(messages, Iterable):
        kind = type(messages).__name__
        raise ChatTemplateError(f"{template}: expected a list of messages, got {kind}; put it into a list")
    turns: list[Turn] = []
    problems: list[str] = []
    for index, message in enumerate(messages):
        if type(message) is Message and message.role in _SPEAKERS and type(message.content) is str:
            turn: Turn = {"role": message.role, "content": message.content}
            if message.tool_calls:
                turn["tool_calls"] = [_wire(call.id, call.name, call.arguments) for call in message.tool_calls]
            if message.name is not None:
                turn["name"] = message.name
            turns.append(turn)
            continue
        try:
            turns.append(_turn(message, roles, first_text))
        except _Problem as problem:
            problems.append(f"messages[{index}]: {problem}")
    if problems:
        raise ChatTemplateError(f"{template}: {'; '.join(problems)}")
    return turns


def read_tools(tools: Tools, template: str) -> list[dict[str, Any]]:
    """Return the tools as function objects (name, description, parameters, ...) that JSON can say.

    Raises:
        ChatTemplateError: Names every tool that cannot be read.
    """
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise ChatTemplateError(f"{template}: expected a list of tools, got {type(tools).__name__}")
    functions: list[dict[str, Any]] = []
    problems: list[str] = []
    for index, tool in enumerate(tools):
        try:
            functions.append(_function(tool))
        except _Problem as problem:
            problems.append(f"tools[{index}]: {problem}")
    if problems:
        raise ChatTemplateError(f"{template}: {'; '.join(problems)}")
    return functions


def calls_of(turn: Turn) -> list[tuple[str, Any]]:
    """Return the name and the arguments of each tool call.

    The arguments are the object that their JSON text says; text that is no JSON stays text, so that it is not lost.
    """
    functions = [call["function"] for call in turn.get("tool_calls", ())]
    return [(function["name"], _arguments(function["arguments"])) for function in functions]


def json_text(value: object, indent: int | None = None) -> str:
    """Return `value` as the JSON that models were trained on: characters outside ASCII stay as they are."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _turn(message: object, roles: Collection[str] | None, first_text: bool) -> Turn:
    if isinstance(message, Message):
        wire: Mapping[str, Any] = {
            "role": message.role,
            "content": message.content,
            "tool_calls": message.tool_calls,
            "tool_call_id": message.tool_call_id,
            "name": message.name,
        }
    elif isinstance(message, Mapping):
        wire = message
    else:
        raise _Problem(f"expected a Message or a mapping, got {type(message).__name__}")
    role = wire.get("role")
    if not isinstance(role, str):
        raise _Problem("has no role" if role is None else f"role: expected text, got {type(role).__name__}")
    if roles is not None and role not in roles:
        raise _Problem(f"unknown role {role!r}{nearest(role, roles)}")
    calls = _calls(wire.get("tool_calls"))
    if "content" not in wire and not calls:
        raise _Problem("has no content")
    turn = Turn(role=str(role), content=_text(wire.get("content"), first_text))
    if calls:
        turn["tool_calls"] = calls
        if first_text and wire.get("content") is None:
            turn["is_silent"] = True
    for key in ("name", "tool_call_id", "reasoning_content"):
        value = wire.get(key)
        if value is not None:
            if not isinstance(value, str):
                raise _Problem(f"{key}: expected text, got {type(value).__name__}")
            cast("dict[str, Any]", turn)[key] = str(value)
    return turn


def _text(content: object, first_text: bool) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return str(content)
    if not isinstance(content, list | tuple):
        raise _Problem(f"content: expected text or a list of parts, got {type(content).__name__}")
    texts: list[str] = []
    for index, part in enumerate(content):
        text, is_text = _part(part, index)
        if is_text and first_text:
            return text
        texts.append(text)
    return "".join(texts)


def _part(part: object, index: int) -> tuple[str, bool]:
    """Return what a content part says, and whether it is text."""
    if isinstance(part, str):
        return str(part), True
    if isinstance(part, Text):
        return part.text, True
    if isinstance(part, Media):
        return part.alt, False
    if not isinstance(part, Mapping):
        raise _Problem(f"content[{index}]: expected text or a part, got {type(part).__name__}")
    if isinstance(part.get("text"), str):
        return str(part["text"]), True
    form = part.get("type")
    if not isinstance(form, str) or form not in _MEDIA:
        raise _Problem(f"content[{index}]: a part of type {form!r} is neither text nor media this layer knows")
    return _alt(part, form), False


def _alt(part: Mapping[str, Any], form: str) -> str:
    """Return the alt text of media in wire form."""
    kind, source = _MEDIA[form], part.get(form)
    if isinstance(source, Mapping):
        source = next((source[key] for key in _SOURCES if isinstance(source.get(key), str)), None)
    if not isinstance(source, str) or not source:
        return f"[{kind}]"
    try:
        return Media(cast("Any", source), kind=kind).alt  # takes text, and tells a path from an address
    except MediaError:
        return f"[{kind}]"


def _calls(calls: object) -> list[dict[str, Any]]:
    """Return tool calls in wire form, each with a name and arguments."""
    if calls is None:
        return []
    if not isinstance(calls, list | tuple):
        raise _Problem(f"tool_calls: expected a list, got {type(calls).__name__}")
    return [_call(call, index) for index, call in enumerate(calls)]


def _call(call: object, index: int) -> dict[str, Any]:
    if isinstance(call, ToolCall):
        return _wire(call.id, call.name, call.arguments)
    if not isinstance(call, Mapping):
        raise _Problem(f"tool_calls[{index}]: expected a tool call, got {type(call).__name__}")
    function = call.get("function", call)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise _Problem(f"tool_calls[{index}]: has no function name")
    arguments = function.get("arguments", function.get("parameters"))
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _Problem(f"tool_calls[{index}]: the arguments of {name!r} are not JSON ({error})") from error
    return _wire(call.get("id"), name, arguments)


def _wire(identity: str | None, name: str, arguments: object) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def _arguments(arguments: Any) -> Any:
    if arguments is None:
        return {}
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        return json.loads(arguments, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return arguments


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _function(tool: object) -> dict[str, Any]:
    if isinstance(tool, ToolSpec):
        function: object = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    else:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else tool
    if not isinstance(function, Mapping):
        raise _Problem(f"expected a ToolSpec or a mapping with a name, got {type(function).__name__}")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise _Problem("has no name")
    try:
        said: dict[str, Any] = json.loads(json.dumps(dict(function), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise _Problem(f"{name!r} is not JSON ({error}); pass plain dicts, lists, text and numbers") from error
    return said
