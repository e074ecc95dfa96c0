"""Writer of a message in the form of OpenAI Responses: a list of items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from agentkit_prompts.context.frozen import FrozenDict, FrozenList, freeze
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.opaque import with_opaque
from agentkit_prompts.context.parts import Media, MediaKind, Part, Text, Url, is_plain
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.sendable_media import data_url, file_id_of, sendable_result_part, without_media
from agentkit_prompts.errors import MediaError

ITEMS = "items"
"""Key in the opaque data of a reply for the original order of its items. An entry of the order describes one item: the
keys and the number of parts of a message, or the type of another item."""
GENERATED = "image_generation_call"
"""Type of the items with generated images."""
_ANY_HOST = Owner("responses")
_FORM = _ANY_HOST.keys
Keys: TypeAlias = tuple[str, ...]
"""Keys of the opaque data and of the thinking that are written, see `Owner.keys`."""
_ACCEPTED_KINDS: tuple[MediaKind, ...] = ("image", "file")


def responses_items(message: Message) -> tuple[FrozenDict, ...]:
    """Return the items of one message (thinking, text, tool calls) in their original order.

    Raises:
        MediaError: The format cannot represent a part, or its file cannot be read.
    """
    return _items_of(message, _FORM)


@lru_cache(maxsize=64)
def responses_writer(owner: Owner = _ANY_HOST) -> Callable[[Message], tuple[FrozenDict, ...]]:
    """Return the writer of messages for one endpoint, which includes the data of this endpoint.

    Equal arguments return the same function, because conversations cache the wire forms of messages by function.
    """
    keys = owner.keys
    if keys == _FORM:
        return responses_items

    def has_images(message: Message) -> bool:
        return any(thought.item.get("type") == GENERATED for thought in _thoughts(message, keys))

    return lambda message: _items_of(without_media(message, has_images), keys)


def _items_of(message: Message, keys: Keys) -> tuple[FrozenDict, ...]:
    if message.role == "tool":
        content = _content([sendable_result_part(part, _ACCEPTED_KINDS) for part in message.parts], "input_text", keys)
        result = {"type": "function_call_output", "call_id": message.tool_call_id, "output": content}
        return (with_opaque(result, message.opaque, keys),)
    unknown = next((message.opaque[key] for key in keys if key in message.opaque), None)
    if not isinstance(unknown, Mapping) or ITEMS not in unknown:
        return _items(message, unknown, keys)
    items = _items_as_received(message, unknown[ITEMS], keys)
    if items is None:
        return _items(message, None, keys)
    return items


class _PlacedItem(NamedTuple):
    """An item, and the number of content parts and calls of the message before the item."""

    place: int
    item: FrozenDict


def _items(message: Message, unknown: Any, keys: Keys) -> tuple[FrozenDict, ...]:
    """Return the content of a message as one item, then its calls, and its thinking at the original positions."""
    placed = _thoughts(message, keys)
    if message.parts or not message.tool_calls:
        placed.append(_PlacedItem(0, _text_item(message, unknown, keys)))
    calls = [_call(call, keys) for call in message.tool_calls]
    placed += [_PlacedItem(place, call) for place, call in enumerate(calls, len(message.parts))]
    placed.sort(key=lambda item: item.place)
    return tuple([item.item for item in placed])


def _items_as_received(message: Message, order: Any, keys: Keys) -> tuple[FrozenDict, ...] | None:
    """Return the items of a reply in their original order; None if the order does not fit the message, because the
    message was changed.
    """
    if not isinstance(order, list | tuple):
        return None
    parts = deque(message.parts)
    waiting = {
        "function_call": deque([_call(call, keys) for call in message.tool_calls]),
        "thinking": deque([thought.item for thought in _thoughts(message, keys)]),
    }
    items: list[FrozenDict] = []
    for entry in order:
        item = _next_item(entry, parts, waiting, keys)
        if item is None:
            return None
        items.append(item)
    if parts or any(waiting.values()):
        return None
    return tuple(items)


def _next_item(
    entry: Any, parts: deque[Part], waiting: Mapping[str, deque[FrozenDict]], keys: Keys
) -> FrozenDict | None:
    """Return the next item, which `entry` of the order describes, and remove its content from `parts` or `waiting`;
    None if the message has no such item.
    """
    if not isinstance(entry, Mapping):
        return None
    fields = dict(entry)
    count, kind = fields.pop("parts", None), fields.get("type")
    if isinstance(count, int) and 0 <= count <= len(parts):
        content = FrozenList([_part(parts.popleft(), "output_text", keys) for _ in range(count)])
        return with_opaque({"role": "assistant", "content": content}, {keys[0]: fields}, keys)
    if count is None and isinstance(kind, str) and waiting.get(kind):
        return waiting[kind].popleft()
    return None


def _thoughts(message: Message, keys: Keys) -> list[_PlacedItem]:
    """Return the items of thinking that belong to the endpoint."""
    placed: list[_PlacedItem] = []
    for thought in message.thinking:
        whole = None
        if thought.provider in keys:
            whole = thought.opaque.get(thought.provider)
        if isinstance(whole, Mapping) and "type" in whole:
            placed.append(_PlacedItem(thought.at, FrozenDict(freeze(whole))))
    return placed


def _text_item(message: Message, unknown: Any, keys: Keys) -> FrozenDict:
    """Return the item of the content of a message."""
    is_reply = message.role == "assistant"
    kind = "output_text" if is_reply else "input_text"
    # A reply with unknown keys came as a list of parts, and is sent back as a list.
    content = _content(message.parts, kind, keys, is_listed=is_reply and unknown is not None)
    item = {"role": message.role, "content": content}
    if unknown is None:
        return FrozenDict(item)
    return with_opaque(item, message.opaque, keys)


def _call(call: ToolCall, keys: Keys) -> FrozenDict:
    wire = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": clean(call.arguments)}
    return with_opaque(wire, call.opaque, keys)


def _content(parts: Sequence[Part], kind: str, keys: Keys, *, is_listed: bool = False) -> Any:
    if is_listed or not all(map(is_plain, parts)):
        return FrozenList(_part(part, kind, keys) for part in parts)
    return clean("".join([part.text for part in parts if isinstance(part, Text)]))


def _part(part: Part, kind: str, keys: Keys) -> FrozenDict:
    wire: dict[str, Any]
    if isinstance(part, Text):
        wire = _text(part, kind)
    elif part.kind in _ACCEPTED_KINDS:
        wire = {"type": f"input_{part.kind}", **_media_source(part, keys)}
    else:
        reason = f"{part.alt}: a Responses request cannot contain {part.kind}; describe it in text instead"
        raise MediaError(reason, name=part.alt, value=part.kind)
    return with_opaque(wire, part.opaque, keys)


def _text(part: Text, kind: str) -> dict[str, Any]:
    if part.kind == "refusal":
        return {"type": "refusal", "refusal": clean(part.text)}
    if kind == "output_text":
        return {"type": kind, "text": clean(part.text), "annotations": FrozenList()}
    return {"type": kind, "text": clean(part.text)}


def _media_source(part: Media, keys: Keys) -> dict[str, Any]:
    file_id = file_id_of(part, keys)
    if file_id is not None:
        return {"file_id": file_id}
    if part.kind == "image":
        return {"image_url": data_url(part)}
    if isinstance(part.source, Url):
        return {"file_url": str(part.source)}
    return {"filename": part.label, "file_data": data_url(part)}
