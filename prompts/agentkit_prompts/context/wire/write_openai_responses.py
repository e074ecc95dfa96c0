"""Writer of a message in the form of OpenAI Responses: a list of items."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentkit_prompts.context.frozen import FrozenDict, FrozenList, freeze
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.opaque import with_opaque
from agentkit_prompts.context.parts import Media, MediaKind, Part, Text, Url, is_plain
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.sendable_media import data_url, file_id_of, sendable_result_part
from agentkit_prompts.errors import MediaError

__all__ = ["ITEMS", "responses_items"]

ITEMS = "items"
"""Key in the opaque data of a reply for the original order of its items. An entry of the order describes one item: the
keys and the number of parts of a message, or the type of another item."""
_FORM = ("responses",)
_ACCEPTED_KINDS: tuple[MediaKind, ...] = ("image", "file")


def responses_items(message: Message) -> tuple[FrozenDict, ...]:
    """Return the items of one message (thinking, text, tool calls) in their original order.

    Raises:
        MediaError: The format cannot represent a part, or its file cannot be read.
    """
    if message.role == "tool":
        content = _content([sendable_result_part(part, _ACCEPTED_KINDS) for part in message.parts], "input_text")
        result = {"type": "function_call_output", "call_id": message.tool_call_id, "output": content}
        return (with_opaque(result, message.opaque, _FORM),)
    unknown = message.opaque.get("responses")
    if not isinstance(unknown, Mapping) or ITEMS not in unknown:
        return _items(message, unknown)
    items = _items_as_received(message, unknown[ITEMS])
    if items is None:
        return _items(message, None)
    return items


class _PlacedItem(NamedTuple):
    """An item, and the number of content parts and calls of the message before the item."""

    place: int
    item: FrozenDict


def _items(message: Message, unknown: Any) -> tuple[FrozenDict, ...]:
    """Return the content of a message as one item, then its calls, and its thinking at the original positions."""
    placed = _thoughts(message)
    if message.parts or not message.tool_calls:
        placed.append(_PlacedItem(0, _text_item(message, unknown)))
    placed += [_PlacedItem(place, _call(call)) for place, call in enumerate(message.tool_calls, len(message.parts))]
    placed.sort(key=lambda item: item.place)
    return tuple([item.item for item in placed])


def _items_as_received(message: Message, order: Any) -> tuple[FrozenDict, ...] | None:
    """Return the items of a reply in their original order; None if the order does not fit the message, because the
    message was changed.
    """
    if not isinstance(order, list | tuple):
        return None
    parts = deque(message.parts)
    waiting = {
        "function_call": deque(map(_call, message.tool_calls)),
        "thinking": deque([thought.item for thought in _thoughts(message)]),
    }
    items: list[FrozenDict] = []
    for entry in order:
        item = _next_item(entry, parts, waiting)
        if item is None:
            return None
        items.append(item)
    if parts or any(waiting.values()):
        return None
    return tuple(items)


def _next_item(entry: Any, parts: deque[Part], waiting: Mapping[str, deque[FrozenDict]]) -> FrozenDict | None:
    """Return the next item, which `entry` of the order describes, and remove its content from `parts` or `waiting`;
    None if the message has no such item.
    """
    if not isinstance(entry, Mapping):
        return None
    keys = dict(entry)
    count, kind = keys.pop("parts", None), keys.get("type")
    if isinstance(count, int) and 0 <= count <= len(parts):
        content = FrozenList([_part(parts.popleft(), "output_text") for _ in range(count)])
        return with_opaque({"role": "assistant", "content": content}, {"responses": keys}, _FORM)
    if count is None and isinstance(kind, str) and waiting.get(kind):
        return waiting[kind].popleft()
    return None


def _thoughts(message: Message) -> list[_PlacedItem]:
    """Return the items of thinking that was read from this form."""
    placed: list[_PlacedItem] = []
    for thought in message.thinking:
        whole = thought.opaque.get("responses")
        if isinstance(whole, Mapping) and "type" in whole:
            placed.append(_PlacedItem(thought.at, FrozenDict(freeze(whole))))
    return placed


def _text_item(message: Message, unknown: Any) -> FrozenDict:
    """Return the item of the content of a message."""
    is_reply = message.role == "assistant"
    kind = "output_text" if is_reply else "input_text"
    # A reply with unknown keys came as a list of parts, and is sent back as a list.
    content = _content(message.parts, kind, is_listed=is_reply and unknown is not None)
    item = {"role": message.role, "content": content}
    if unknown is None:
        return FrozenDict(item)
    return with_opaque(item, message.opaque, _FORM)


def _call(call: ToolCall) -> FrozenDict:
    wire = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": clean(call.arguments)}
    return with_opaque(wire, call.opaque, _FORM)


def _content(parts: Sequence[Part], kind: str, *, is_listed: bool = False) -> Any:
    if is_listed or not all(map(is_plain, parts)):
        return FrozenList(_part(part, kind) for part in parts)
    return clean("".join([part.text for part in parts if isinstance(part, Text)]))


def _part(part: Part, kind: str) -> FrozenDict:
    wire: dict[str, Any]
    if isinstance(part, Text):
        wire = _text(part, kind)
    elif part.kind in _ACCEPTED_KINDS:
        wire = {"type": f"input_{part.kind}", **_media_source(part)}
    else:
        reason = f"{part.alt}: a Responses request cannot contain {part.kind}; describe it in text instead"
        raise MediaError(reason, name=part.alt, value=part.kind)
    return with_opaque(wire, part.opaque, _FORM)


def _text(part: Text, kind: str) -> dict[str, Any]:
    if part.kind == "refusal":
        return {"type": "refusal", "refusal": clean(part.text)}
    if kind == "output_text":
        return {"type": kind, "text": clean(part.text), "annotations": FrozenList()}
    return {"type": kind, "text": clean(part.text)}


def _media_source(part: Media) -> dict[str, Any]:
    file_id = file_id_of(part, _FORM)
    if file_id is not None:
        return {"file_id": file_id}
    if part.kind == "image":
        return {"image_url": data_url(part)}
    if isinstance(part.source, Url):
        return {"file_url": str(part.source)}
    return {"filename": part.label, "file_data": data_url(part)}
