"""Reader of the requests and responses of pydantic-ai, also as the dicts of its `ModelMessagesTypeAdapter`."""

from __future__ import annotations

import base64
import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.foreign_fields import field_of, json_rest, list_of, text_of
from agentkit_prompts.context.wire.foreign_message import ForeignMessage
from agentkit_prompts.errors import Problem, Problems, brief

_LIBRARY = "pydantic-ai"
_USED = frozenset(("parts", "kind", "part_kind", "content", "tool_name", "tool_call_id", "args", "state"))
PYDANTIC_AI_MEDIA = {
    "image-url": "image",
    "audio-url": "audio",
    "video-url": "video",
    "document-url": "file",
    "uploaded-file": "file",
    "binary": "",
}
"""Types of parts by the `kind` of media; the type of `binary` depends on its media type."""
_STEPS = ("builtin-tool-call", "builtin-tool-return", "compaction")
_RETRY = "Fix the errors and try again."


def read_pydantic_ai(item: object, where: str, problems: Problems) -> list[ForeignMessage]:
    """Return one message for a response, and one for each part of a request."""
    rest = json_rest(item, _USED, where, problems)
    if field_of(item, "kind") == "response":
        return [_response(item, rest, where, problems)]
    messages: list[ForeignMessage] = []
    for index, part in enumerate(list_of(item, "parts", where, problems)):
        place = f"{where}.parts[{index}]"
        keys = _request_part(part, place, problems)
        if keys is not None:
            unused_fields = json_rest(part, _USED, place, problems)
            messages.append(ForeignMessage(place, _LIBRARY, keys, {**rest, **unused_fields}))
            rest = {}
    return messages


def _request_part(part: object, where: str, problems: Problems) -> dict[str, Any] | None:
    kind = field_of(part, "part_kind")
    content = field_of(part, "content")
    if kind == "system-prompt":
        return {"role": "system", "content": content}
    if kind == "user-prompt":
        return {"role": "user", "content": _user_content(content)}
    if kind == "tool-return":
        return _result(part, result_content(content, f"{where}.content", problems))
    if kind in ("retry-prompt", "retry-feedback"):
        text = content if isinstance(content, str) else _json_text(content, where, problems)
        text = f"{text}\n\n{_RETRY}"
        if field_of(part, "tool_name") is None:
            return {"role": "user", "content": text}
        return _result(part, text)
    problems.append(Problem(where, f"a part {brief(kind)} of a request has no counterpart: remove it"))
    return None


def _result(part: object, content: Any) -> dict[str, Any]:
    name, call_id = field_of(part, "tool_name"), field_of(part, "tool_call_id")
    return {"role": "tool", "content": content, "tool_call_id": call_id, "name": name}


def _response(item: object, rest: dict[str, Any], where: str, problems: Problems) -> ForeignMessage:
    content: list[Any] = []
    calls: list[dict[str, Any]] = []
    unused_fields: dict[str, Any] = {}
    for index, part in enumerate(list_of(item, "parts", where, problems)):
        place = f"{where}.parts[{index}]"
        kind = field_of(part, "part_kind")
        if kind == "tool-call":
            name, call_id = field_of(part, "tool_name"), field_of(part, "tool_call_id")
            calls.append({"id": call_id, "name": name, "arguments": field_of(part, "args") or {}})
        else:
            content += _response_part(part, kind, place, problems)
        if kind in ("text", "tool-call", "file"):
            unused = json_rest(part, _USED, place, problems)
            if unused:
                unused_fields[str(index)] = unused
    if unused_fields:
        rest["parts"] = unused_fields
    keys: dict[str, Any] = {"role": "assistant", "content": content, "tool_calls": calls}
    if len(content) == 1 and isinstance(content[0], str):
        keys["content"] = content[0]
    return ForeignMessage(where, _LIBRARY, keys, rest)


def _response_part(part: object, kind: object, where: str, problems: Problems) -> list[Any]:
    content = field_of(part, "content")
    if kind == "text":
        return [content] if content else []
    if kind == "thinking":
        return [_thought(part)]
    if kind == "file":
        return [_media(content)]
    if kind == "speech":
        return [text_of(part, "transcript")]
    if kind in _STEPS:
        data = json_rest(part, frozenset(), where, problems)
        return [Thinking("", _LIBRARY, opaque={_LIBRARY: data})]
    problems.append(Problem(where, f"a part {brief(kind)} of a response has no counterpart: remove it"))
    return []


def _thought(part: object) -> Thinking:
    text, signature = text_of(part, "content"), text_of(part, "signature") or None
    provider = text_of(part, "provider_name")
    if provider != "anthropic":
        # Other providers verify more than a text and its signature: their thinking is stored and not sent.
        provider = f"{_LIBRARY}:{provider}" if provider else _LIBRARY
    elif field_of(part, "id") == "redacted_thinking":
        return Thinking(text, provider, redacted=signature)
    return Thinking(text, provider, signature)


def _user_content(content: object) -> Any:
    if not isinstance(content, list | tuple):
        return content
    parts: list[Any] = []
    for item in content:
        kind = text_of(item, "kind")
        if kind == "cache-point":
            continue
        if kind in ("text-content", "structured-content"):
            parts.append(field_of(item, "content"))
        elif kind in PYDANTIC_AI_MEDIA:
            parts.append(_media(item))
        else:
            parts.append(item)
    return parts


def result_content(value: object, where: str, problems: Problems) -> Any:
    """Return the value of a tool as text, or as parts if it is or contains media."""
    if isinstance(value, str):
        return value
    if text_of(value, "kind") in PYDANTIC_AI_MEDIA:
        return [_media(value)]
    if isinstance(value, list | tuple) and any(text_of(item, "kind") in PYDANTIC_AI_MEDIA for item in value):
        parts: list[Any] = []
        for index, item in enumerate(value):
            part = result_content(item, f"{where}[{index}]", problems)
            parts += part if isinstance(part, list) else [part]
        return parts
    return _json_text(value, where, problems)


def _json_text(value: object, where: str, problems: Problems) -> str:
    try:
        return json.dumps(to_jsonable_python(value), ensure_ascii=False)
    except (PydanticSerializationError, ValueError, RecursionError):
        problems.append(Problem(where, f"{type(value).__name__} is not JSON and cannot be stored: convert it to text"))
        return ""


def _media(item: object) -> dict[str, Any]:
    media_type, data = field_of(item, "media_type"), field_of(item, "data")
    part = PYDANTIC_AI_MEDIA.get(text_of(item, "kind")) or _part_of(text_of(item, "media_type"))
    if isinstance(data, bytes):
        data = base64.b64encode(data).decode("ascii")
    elif isinstance(data, str):
        # Dicts of pydantic-ai contain URL-safe base64.
        data = data.replace("-", "+").replace("_", "/")
    keys = {"type": part, "media_type": media_type, "filename": text_of(item, "identifier") or None}
    return keys | {"data": data, "url": field_of(item, "url"), "file_id": field_of(item, "file_id")}


def _part_of(media_type: str) -> str:
    kind = media_type.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "file"
