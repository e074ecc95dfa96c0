"""What a chat template is given: plain JSON data, in the shapes that this template understands.

`plain` is what `transformers` does to its inputs; `Normaliser` brings what people send into the form a template wants.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar

from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part, Text
from agentkit_prompts.context.wire.read_messages import REASONING
from agentkit_prompts.context.wire.read_parts import plain_text_of
from agentkit_prompts.context.wire.wire_tools import openai_tool, read_tools
from agentkit_prompts.errors import ChatTemplateError, Problems

__all__ = ["Form", "as_mappings", "as_tools", "flat", "normalised", "plain", "template_message"]

T = TypeVar("T")

Form = Literal["text", "parts", "any", "object"]
"""What a template wants: content as text or parts, arguments as text or an object; `any` takes both."""


def plain(value: Any) -> Any:
    """Return `value` rebuilt from plain JSON types; any other becomes a placeholder with its type's name."""
    kind = type(value)
    if kind is str or value is None or kind is bool or kind is int or kind is float:
        return value
    if kind is dict or isinstance(value, Mapping):  # asking an abstract class takes long
        return {plain(key): plain(item) for key, item in value.items()}
    if kind is list:
        return [plain(item) for item in value]
    for base in (str, int, float):
        if isinstance(value, base):
            return getattr(base, f"__{base.__name__}__")(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, Message):
        return plain(template_message(value))
    if isinstance(value, ToolSpec):
        return plain(openai_tool(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        return plain(dump())
    if kind.__module__ == "numpy" and callable(item := getattr(value, "item", None)) and not hasattr(value, "__len__"):
        return plain(item())
    return f"<{kind.__name__}>"


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose reasoning has every name that templates read it under."""
    if message.keys().isdisjoint(REASONING):
        return message
    found = next((message[name] for name in REASONING if message.get(name) is not None), None)
    if found is None:
        return message
    return {"thinking": found, **message, "reasoning_content": found}


def as_mappings(messages: object) -> list[dict[str, Any]]:
    """Return messages as plain dictionaries of their own.

    Raises:
        ChatTemplateError: They are not a list of messages; names every entry that is not.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise _refused([f"messages: expected a list, got {type(messages).__name__}"])
    given = flat("messages", lambda: list(messages))
    made = flat("messages", lambda: [_mapping(message) for message in given])
    _refuse(
        f"messages[{index}]: expected a Message or a mapping with role and content, got {type(given[index]).__name__}"
        for index, message in enumerate(made)
        if type(message) is not dict
    )
    return [_with_reasoning(message) for message in made]


def _mapping(message: object) -> Any:
    if type(message) is dict and {*map(type, message), *map(type, message.values())} == {str}:
        return message.copy()
    return plain(message)


def as_tools(tools: object) -> list[dict[str, Any]] | None:
    """Return tools as plain dictionaries of their own, in the form of a chat-completions request.

    Raises:
        ChatTemplateError: One is neither a tool spec nor a mapping that JSON can say.
    """
    if tools is None:
        return None
    problems: Problems = []
    read = read_tools(tools, problems, needs_name=False)
    _refuse(map(str, problems))
    return read


def flat(what: str, make: Callable[[], T]) -> T:
    """Return what `make` makes of data from outside.

    Raises:
        ChatTemplateError: The data is cyclic, or nests too deeply to be walked through, or code of its own fails.
    """
    try:
        return make()
    except ChatTemplateError:
        raise
    except RecursionError:
        raise _refused([f"{what}: the data is cyclic or nests too deeply; pass flatter data"]) from None
    except Exception as error:
        raise _refused([f"{what}: cannot be read: {type(error).__name__}: {error}"]) from error


def _refuse(problems: Iterable[str]) -> None:
    listed = list(problems)
    if listed:
        raise _refused(listed)


def _refused(problems: list[str]) -> ChatTemplateError:
    return ChatTemplateError("; ".join(problems), listed=problems)


def template_message(message: Message) -> dict[str, Any]:
    """Return a message of ours as templates read it: media as their alt text, thoughts as reasoning."""
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if type(message.content) is tuple:
        made["content"] = [_part(part) for part in message.content]
    if message.tool_calls:
        made["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    if message.name:
        made["name"] = message.name
    if message.thinking and (reasoning := message.reasoning):
        made["reasoning_content"] = reasoning
    return made


def _part(part: Part) -> dict[str, str]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.kind == "file":
        return {"type": "text", "text": part.alt}  # no template has a place for files
    return {"type": part.kind, "alt": part.alt}


def normalised(
    messages: list[dict[str, Any]], content: Callable[[str, str], Form], arguments: Callable[[], Form]
) -> list[dict[str, Any]]:
    """Return messages in the shapes that a template understands; the ones given are its own to change.

    Null content becomes empty text, other null fields and empty lists of calls go, tool calls get the type and id
    they lack, and the results of tools the id and name of the call they answer.

    Args:
        messages: What `as_mappings` made.
        content: Given a role and the form at hand (`text` or `parts`), tells the form the template wants there.
        arguments: Tells the form the template wants the arguments of tool calls in.

    Raises:
        ChatTemplateError: A message has no role, or content that is neither text nor parts. Names all of them.
    """
    problems: list[str] = []
    made: list[dict[str, Any]] = []
    open_calls: list[tuple[str, str]] = []
    count = 0
    for index, message in enumerate(messages):
        role, text = message.get("role"), message.get("content")
        if not isinstance(role, str) or not role:
            problems.append(f"messages[{index}].role: missing")
            continue
        if None in message.values():
            message = {key: value for key, value in message.items() if value is not None}
        if text is None:
            message = {"role": role, "content": "", **message}
        elif type(text) is str:
            if content(role, "text") == "parts":
                message["content"] = [{"type": "text", "text": text}]
        elif isinstance(text, list | tuple):
            listed = [{"type": "text", "text": part} if isinstance(part, str) else part for part in text]
            wrong = [
                f"messages[{index}].content[{at}]: expected text or a part, got {type(part).__name__}"
                for at, part in enumerate(listed)
                if not isinstance(part, dict)
            ]
            wants_text = not wrong and content(role, "parts") == "text"
            message["content"] = "".join(map(_plain_text, listed)) if wants_text else listed
            problems += wrong
        else:
            problems.append(f"messages[{index}].content: expected text or a list of parts, got {type(text).__name__}")
        if "tool_calls" in message:
            if not message["tool_calls"]:
                del message["tool_calls"]
            else:
                calls = _calls(message["tool_calls"], f"messages[{index}].tool_calls", problems, count, arguments())
                message["tool_calls"] = calls
                open_calls = [(str(call["id"]), str(call["function"]["name"])) for call in calls]
                count += len(calls)
        elif role == "tool" and open_calls:
            _answer(message, open_calls)
        made.append(message)
    _refuse(problems)
    return made


def _plain_text(part: dict[str, Any]) -> str:
    return plain_text_of(part, "", [])[0] or f"[{part.get('type', 'part')}]"


def _calls(calls: Any, where: str, problems: list[str], count: int, form: Form) -> list[dict[str, Any]]:
    """Return the calls of a message made whole, `count` of them in front of it; what is wrong is noted."""
    if not isinstance(calls, list | tuple):
        problems.append(f"{where}: expected a list, got {type(calls).__name__}")
        return []
    made: list[dict[str, Any]] = []
    for at, call in enumerate(calls):
        flat = isinstance(call, dict) and "function" not in call and "name" in call
        function = call if flat else call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            problems.append(f"{where}[{at}].function.name: missing")
            continue
        around = {key: value for key, value in call.items() if value is not None and (not flat or key == "id")}
        inside = {key: value for key, value in function.items() if not flat or key in ("name", "arguments")}
        inside["arguments"] = _arguments(function.get("arguments"), form)
        # Nine digits: the one form of id that every family of templates accepts.
        made.append({"id": f"{count + at:09d}", "type": "function", **around, "function": inside})
    return made


def _arguments(arguments: Any, form: Form) -> Any:
    if arguments is None or arguments == "":
        arguments = {}
    if form == "text" and not isinstance(arguments, str):
        return json.dumps(arguments, ensure_ascii=False)
    if form == "object" and isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments  # as the model wrote it: the template says it, or says why it cannot
        return parsed if isinstance(parsed, dict) else arguments
    return arguments


def _answer(message: dict[str, Any], calls: list[tuple[str, str]]) -> None:
    """Say which call a result is of: the one with its id, else the first that is not answered yet."""
    given = message.get("tool_call_id")
    found = calls[0] if given is None else next((call for call in calls if call[0] == given), None)
    if found is not None:
        calls.remove(found)
        message.setdefault("tool_call_id", found[0])
        message.setdefault("name", found[1])
