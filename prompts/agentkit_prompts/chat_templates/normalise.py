"""Conversion of messages and tools to plain JSON data, in the forms that a chat template reads.

`plain` converts values as `transformers` does; `normalised` converts messages of any common form to the form that a
template reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part, Text
from agentkit_prompts.context.wire.read_parts import plain_text_of
from agentkit_prompts.context.wire.thought_fields import THOUGHT_FIELDS
from agentkit_prompts.context.wire.wire_tools import openai_tool, read_tools
from agentkit_prompts.errors import ChatTemplateError, Problem, Problems

T = TypeVar("T")

Form = Literal["text", "parts", "any", "object"]
"""Form that a template reads: content as text or parts, arguments as text or an object; `any` takes both."""
_ATOMS = (str, int, float, bool, type(None))


def plain(value: Any) -> Any:
    """Return `value` rebuilt from plain JSON types; any other value becomes a placeholder with the name of its type."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    # Plain types first, because `isinstance` with an abstract class is slow.
    if kind is dict:
        return {plain(key): plain(item) for key, item in value.items()}
    if kind is list:
        return [plain(item) for item in value]
    if kind is tuple:
        return tuple([plain(item) for item in value])
    for fits, convert in _CONVERTERS:
        if fits(value):
            return plain(convert(value))
    return f"<{kind.__name__}>"


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its reasoning under every name that templates read."""
    values = [message[name] for name in THOUGHT_FIELDS if message.get(name) is not None]
    if not values:
        return message
    return {"thinking": values[0], **message, "reasoning_content": values[0]}


def as_mappings(messages: object) -> list[dict[str, Any]]:
    """Return messages as new plain dictionaries.

    Raises:
        ChatTemplateError: The value is not a list of messages; names every invalid entry.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise _refusal([Problem("messages", f"expected a list, got {type(messages).__name__}")])
    items = flat("messages", lambda: list(messages))
    mappings = flat("messages", lambda: [_mapping(item) for item in items])
    problems = [
        Problem(
            f"messages[{index}]",
            f"expected a Message or a mapping with role and content, got {type(items[index]).__name__}",
        )
        for index, mapping in enumerate(mappings)
        if type(mapping) is not dict
    ]
    if problems:
        raise _refusal(problems)
    return [_with_reasoning(mapping) for mapping in mappings]


def _mapping(message: object) -> Any:
    # A mapping of text to text needs no conversion.
    if type(message) is dict and {*map(type, message), *map(type, message.values())} == {str}:
        return message.copy()
    return plain(message)


def as_tools(tools: object) -> list[dict[str, Any]] | None:
    """Return tools as new plain dictionaries, in the form of a chat-completions request.

    Raises:
        ChatTemplateError: A tool is neither a tool spec nor a mapping that JSON can express.
    """
    if tools is None:
        return None
    problems: Problems = []
    mappings = read_tools(tools, problems, needs_name=False)
    if problems:
        raise _refusal(problems)
    return mappings


def flat(place: str, make: Callable[[], T]) -> T:
    """Return the result of `make`, which reads external data.

    Raises:
        ChatTemplateError: The data is cyclic or nests too deeply, or code of its classes fails.
    """
    try:
        return make()
    except ChatTemplateError:
        raise
    except RecursionError:
        raise _refusal([Problem(place, "the data is cyclic or nests too deeply; pass flatter data")]) from None
    except Exception as error:
        raise _refusal([Problem(place, f"cannot be read: {type(error).__name__}: {error}")]) from error


def _refusal(problems: Problems) -> ChatTemplateError:
    return ChatTemplateError("; ".join(map(str, problems)), problems=problems)


def template_message(message: Message) -> dict[str, Any]:
    """Return the template form of a `Message`: media as alt text, thinking as reasoning."""
    result: dict[str, Any] = {"role": message.role, "content": message.content}
    if type(message.content) is tuple:
        result["content"] = [_part(part) for part in message.content]
    if message.tool_calls:
        result["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        result["tool_call_id"] = message.tool_call_id
    if message.name:
        result["name"] = message.name
    if message.thinking and message.reasoning:
        result["reasoning_content"] = message.reasoning
    return result


def _part(part: Part) -> dict[str, str]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.kind == "file":
        # No template has a place for files.
        return {"type": "text", "text": part.alt}
    return {"type": part.kind, "alt": part.alt}


def _is(kind: type | tuple[type, ...]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _is_data_class(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _is_model(value: Any) -> bool:
    return callable(getattr(value, "model_dump", None)) and not isinstance(value, type)


def _is_numpy_scalar(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "item") and not hasattr(value, "__len__")


_CONVERTERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...] = (
    # Methods of the plain type, because a subclass can override them.
    (_is(str), str.__str__),
    (_is(int), int.__int__),
    (_is(float), float.__float__),
    (_is(Mapping), lambda value: dict(value.items())),
    (_is(list), list),
    (_is(tuple), tuple),
    (_is(Message), template_message),
    (_is(ToolSpec), openai_tool),
    (_is_data_class, lambda value: {field.name: getattr(value, field.name) for field in fields(value)}),
    (_is_model, lambda value: value.model_dump()),
    (_is_numpy_scalar, lambda value: value.item()),
)
"""Conversions of values of other classes; the first match is used."""


def normalised(
    messages: list[dict[str, Any]], content: Callable[[str, str], Form], arguments: Callable[[], Form]
) -> list[dict[str, Any]]:
    """Return messages in the forms that a template reads; `messages` can be changed.

    Null content becomes empty text, other null fields and empty lists of calls are removed, missing types and ids of
    tool calls are added, and tool results get the id and name of their call.

    Args:
        messages: Messages that `as_mappings` returned.
        content: Function that returns the form of content for the template, for a role and the current form (`text` or
            `parts`).
        arguments: Function that returns the form of tool call arguments for the template.

    Raises:
        ChatTemplateError: A message has no role, or content that is neither text nor parts. Names all of them.
    """
    normaliser = _Normaliser(content, arguments)
    result = [normaliser.message(message, f"messages[{index}]") for index, message in enumerate(messages)]
    if normaliser.problems:
        raise _refusal(normaliser.problems)
    return result


class _OpenCall(NamedTuple):
    """A tool call without a result so far."""

    id: str
    name: str


class _Normaliser:
    """Normaliser of the messages of one conversation, in order."""

    def __init__(self, content_form: Callable[[str, str], Form], arguments_form: Callable[[], Form]) -> None:
        self.problems: Problems = []
        self._content_form = content_form
        self._arguments_form = arguments_form
        self._open: list[_OpenCall] = []
        self._count = 0

    def message(self, message: dict[str, Any], place: str) -> dict[str, Any]:
        role = message.get("role")
        if not isinstance(role, str) or not role:
            self.problems.append(Problem(f"{place}.role", "missing"))
            return message
        message = _without_nulls(message)
        if "content" in message:
            message["content"] = self._content(message["content"], role, f"{place}.content")
        else:
            # Some templates read `content` of every message, so add it if missing.
            message = {"role": role, "content": "", **message}
        if message.get("tool_calls"):
            message["tool_calls"] = self._calls(message["tool_calls"], f"{place}.tool_calls")
        elif "tool_calls" in message:
            del message["tool_calls"]
        elif role == "tool" and self._open:
            self._answer(message)
        return message

    def _read_part(self, part: Any, place: str) -> Any:
        if isinstance(part, str):
            return {"type": "text", "text": part}
        if not isinstance(part, dict):
            self.problems.append(Problem(place, f"expected text or a part, got {type(part).__name__}"))
        return part

    def _content(self, content: Any, role: str, place: str) -> Any:
        if type(content) is str:
            if self._content_form(role, "text") == "parts":
                return [{"type": "text", "text": content}]
            return content
        if not isinstance(content, list | tuple):
            self.problems.append(Problem(place, f"expected text or a list of parts, got {type(content).__name__}"))
            return content
        parts = [self._read_part(part, f"{place}[{index}]") for index, part in enumerate(content)]
        if not self.problems and self._content_form(role, "parts") == "text":
            return "".join(map(_plain_text, parts))
        return parts

    def _calls(self, calls: Any, place: str) -> list[dict[str, Any]]:
        if not isinstance(calls, list | tuple):
            self.problems.append(Problem(place, f"expected a list, got {type(calls).__name__}"))
            return []
        form = self._arguments_form()
        result: list[dict[str, Any]] = []
        for index, call in enumerate(calls):
            normal = _wire_call(call)
            function = normal.get("function")
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                self.problems.append(Problem(f"{place}[{index}].function.name", "missing"))
                continue
            arguments = _arguments(function.get("arguments"), form)
            # Nine digits: the only form of id that all template families accept.
            defaults = {"id": f"{self._count + index:09d}", "type": "function"}
            result.append({**defaults, **normal, "function": {**function, "arguments": arguments}})
        # Results belong to the latest message with calls.
        self._open = [_OpenCall(str(call["id"]), call["function"]["name"]) for call in result]
        self._count += len(result)
        return result

    def _answer(self, message: dict[str, Any]) -> None:
        """Add the id and name of its call to a result: the call with its id, or else the first call without a
        result.
        """
        call_id = message.get("tool_call_id")
        for call in self._open:
            if call_id in (None, call.id):
                self._open.remove(call)
                message.setdefault("tool_call_id", call.id)
                message.setdefault("name", call.name)
                return


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _plain_text(part: dict[str, Any]) -> str:
    return plain_text_of(part, "", []).text or f"[{part.get('type', 'part')}]"


def _wire_call(call: Any) -> dict[str, Any]:
    """Return a call in the form of a chat-completions request; its name and arguments can also be top-level keys."""
    if not isinstance(call, dict):
        return {}
    if "function" not in call and "name" in call:
        function = {key: call[key] for key in ("name", "arguments") if key in call}
        call = {"id": call.get("id"), "function": function}
    return _without_nulls(call)


def _arguments(arguments: Any, form: Form) -> Any:
    if arguments is None or arguments == "":
        arguments = {}
    if form == "text" and not isinstance(arguments, str):
        return json.dumps(arguments, ensure_ascii=False)
    if form == "object" and isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
        return value if isinstance(value, dict) else arguments
    return arguments
