"""Reader of the chat messages of LlamaIndex."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from os import PathLike
from typing import Any

from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.foreign_fields import field_of, json_rest, list_of, mapping_of, text_of, values_of
from agentkit_prompts.context.wire.foreign_message import ForeignMessage
from agentkit_prompts.errors import Problem, Problems, brief

_LIBRARY = "llama-index"
_ROLES = {"chatbot": "assistant", "model": "assistant", "function": "tool"}
_USED = frozenset(("role", "blocks", "content", "additional_kwargs"))
_KWARGS = frozenset(("tool_calls", "tool_call_id", "name"))
"""Keys of `additional_kwargs` that become parts of a message."""
_MEDIA = {
    "image": ("image", "image", "image_mimetype"),
    "audio": ("audio", "audio", "format"),
    "video": ("video", "video", "video_mimetype"),
    "document": ("file", "data", "document_mimetype"),
}
"""Type of the part, and the keys of data and media type, by the type of the block."""


def read_llama_index(item: object, where: str, problems: Problems) -> list[ForeignMessage]:
    """Return one message."""
    role = field_of(item, "role")
    role = getattr(role, "value", role)
    if isinstance(role, str):
        role = _ROLES.get(role, role)
    kwargs = mapping_of(item, "additional_kwargs", where, problems)
    rest = json_rest(item, _USED, where, problems)
    further = json_rest(kwargs, _KWARGS, f"{where}.additional_kwargs", problems)
    if further:
        rest["additional_kwargs"] = further
    calls: list[Any] = []
    content: list[Any] = []
    unused_fields: dict[str, Any] = {}
    for index, block in enumerate(field_of(item, "blocks")):
        place = f"{where}.blocks[{index}]"
        if field_of(block, "block_type") == "tool_call":
            calls.append(_call(block))
            continue
        parts, unused = _parts(block, place, problems)
        content += parts
        if unused:
            unused_fields[str(index)] = unused
    if unused_fields:
        rest["blocks"] = unused_fields
    keys: dict[str, Any] = {"role": role, "name": kwargs.get("name"), "content": content}
    if len(content) == 1 and isinstance(content[0], str):
        keys["content"] = content[0]
    if keys["role"] == "tool":
        keys["tool_call_id"] = kwargs.get("tool_call_id")
    if keys["role"] == "assistant":
        # Integrations store the calls in blocks, in the kwargs, or in both.
        keys["tool_calls"] = calls or [_as_mapping(call) for call in list_of(kwargs, "tool_calls", where, problems)]
    return [ForeignMessage(where, _LIBRARY, keys, rest)]


def _call(block: object) -> dict[str, Any]:
    arguments = field_of(block, "tool_kwargs")
    name, call_id = field_of(block, "tool_name"), field_of(block, "tool_call_id")
    return {"id": call_id, "name": name, "arguments": arguments or {}}


def _as_mapping(call: Any) -> Any:
    if isinstance(call, Mapping):
        return call
    dump = getattr(call, "model_dump", None)
    return dump() if callable(dump) else call


def _parts(block: object, where: str, problems: Problems) -> tuple[list[Any], dict[str, Any]]:
    """Return the parts of a block, and its data without a counterpart."""
    kind = text_of(block, "block_type")
    if kind == "text":
        return [field_of(block, "text")], {}
    if kind in _MEDIA:
        return [_media(block, kind)], json_rest(block, _media_keys(kind), where, problems)
    if kind == "thinking":
        return [_thought(block)], {}
    if kind == "cache":
        # The composition sets its own cache marks.
        return [], {}
    if kind == "citation":
        return [], {"citation": json_rest(block, frozenset(("block_type",)), where, problems)}
    if kind == "citable":
        parts: list[Any] = []
        for index, inner in enumerate(list_of(block, "content", where, problems)):
            parts += _parts(inner, f"{where}.content[{index}]", problems)[0]
        return parts, json_rest(block, frozenset(("block_type", "content")), where, problems)
    problems.append(Problem(where, f"unknown type {brief(kind)}"))
    return [], {}


def _media_keys(kind: str) -> frozenset[str]:
    _, data, media_type = _MEDIA[kind]
    return frozenset(("block_type", "url", "path", "title", data, media_type))


def _media(block: object, kind: str) -> dict[str, Any]:
    part, data_key, type_key = _MEDIA[kind]
    media: dict[str, Any] = {"type": part, "filename": field_of(block, "title")}
    media_type, data = field_of(block, type_key), field_of(block, data_key)
    if isinstance(media_type, str):
        media["media_type" if "/" in media_type else "format"] = media_type
    if data is not None:
        return media | {"data": _base64(data)}
    if field_of(block, "url") is not None:
        return media | {"url": _address(field_of(block, "url"))}
    return media | {"path": _address(field_of(block, "path"))}


def _address(value: Any) -> Any:
    """Return a URL object or a path as text, any other value unchanged."""
    if isinstance(value, PathLike) or hasattr(value, "unicode_string"):
        return str(value)
    return value


def _base64(data: Any) -> Any:
    """Return base64 text. The blocks of LlamaIndex store base64 in bytes or in a buffer; other bytes are encoded."""
    if hasattr(data, "read"):
        data = data.read()
    if not isinstance(data, bytes):
        return data
    try:
        base64.b64decode(data, validate=True)
    except ValueError:
        data = base64.b64encode(data)
    return data.decode("ascii")


def _thought(block: object) -> Thinking:
    details = values_of(field_of(block, "additional_information") or {})
    text = text_of(block, "content")
    if details.keys() == {"signature"} and isinstance(details["signature"], str):
        return Thinking(text, "anthropic", details["signature"])
    if details:
        return Thinking(text, _LIBRARY, opaque={_LIBRARY: dict(details)})
    return Thinking(text, _LIBRARY)
