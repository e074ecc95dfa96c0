"""A message in the form of OpenAI's Responses: a list of items."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentkit_prompts.context.frozen import FrozenDict, FrozenList, freeze
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.opaque import with_opaque
from agentkit_prompts.context.parts import Media, MediaKind, Part, Text, Url
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.sendable_media import data_url, file_id_of, of_result
from agentkit_prompts.errors import MediaError

__all__ = ["ITEMS", "responses_items"]

ITEMS = "items"
"""What a message of several items keeps of them, in their order: the keys of each message and its number of parts."""
_FORM = ("responses",)
_TAKEN: tuple[MediaKind, ...] = ("image", "file")


def responses_items(message: Message) -> tuple[FrozenDict, ...]:
    """Return the items of one message: thoughts, text, tool calls, in the order they were written.

    Raises:
        MediaError: The form has no place for a part, or its file cannot be read.
    """
    if message.role == "tool":
        content = _content([of_result(part, _TAKEN) for part in message.parts], "input_text")
        result = {"type": "function_call_output", "call_id": message.tool_call_id, "output": content}
        return (with_opaque(result, message.opaque, _FORM),)
    thoughts = [_Placed(thought.at, item) for thought in message.thinking if (item := _thought(thought)) is not None]
    calls = [_call(call) for call in message.tool_calls]
    unknown = message.opaque.get("responses")
    if unknown is not None and ITEMS in unknown:
        items = _ordered(message.parts, calls, [thought.item for thought in thoughts], unknown[ITEMS])
        if items is not None:
            return items
        unknown = None
    placed = [*thoughts]
    if message.parts or not calls:
        placed.append(_Placed(0, _text_item(message, unknown)))
    placed += [_Placed(place, call) for place, call in enumerate(calls, len(message.parts))]
    placed.sort(key=lambda item: item.place)
    return tuple([item.item for item in placed])


class _Placed(NamedTuple):
    """An item, and the number of parts and calls before it."""

    place: int
    item: FrozenDict


def _thought(thought: Thinking) -> FrozenDict | None:
    """Return the item of a thought that came in this form."""
    whole = thought.opaque.get("responses")
    if isinstance(whole, Mapping) and "type" in whole:
        return FrozenDict(freeze(whole))
    return None


def _text_item(message: Message, unknown: Any) -> FrozenDict:
    """Return the item of the content of a message."""
    is_reply = message.role == "assistant"
    kind = "output_text" if is_reply else "input_text"
    # A reply with unknown keys came as a list of parts, and goes back as one.
    content = _content(message.parts, kind, is_listed=is_reply and unknown is not None)
    item = {"role": message.role, "content": content}
    if unknown is None:
        return FrozenDict(item)
    return with_opaque(item, message.opaque, _FORM)


def _call(call: ToolCall) -> FrozenDict:
    made = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": clean(call.arguments)}
    return with_opaque(made, call.opaque, _FORM)


def _ordered(
    parts: Sequence[Part], calls: Sequence[FrozenDict], thoughts: Sequence[FrozenDict], order: Any
) -> tuple[FrozenDict, ...] | None:
    """Return the items of a reply as they came; None if the message was changed, so that it has other items."""
    left: dict[str, deque[Any]] = {"parts": deque(parts), "function_call": deque(calls), "thinking": deque(thoughts)}
    made: list[FrozenDict] = []
    if not isinstance(order, list | tuple) or not all(isinstance(entry, Mapping) for entry in order):
        return None
    for entry in order:
        kept = dict(entry)
        count, kind = kept.pop("parts", None), kept.get("type")
        if isinstance(count, int) and 0 <= count <= len(left["parts"]):
            content = FrozenList([_part(left["parts"].popleft(), "output_text") for _ in range(count)])
            made.append(with_opaque({"role": "assistant", "content": content}, {"responses": kept}, _FORM))
        elif count is None and isinstance(kind, str) and left.get(kind):
            made.append(left[kind].popleft())
        else:
            return None
    if any(left.values()):
        return None
    return tuple(made)


def _content(parts: Sequence[Part], kind: str, *, is_listed: bool = False) -> Any:
    if not is_listed and all(isinstance(part, Text) and part.kind == "text" and not part.opaque for part in parts):
        return clean("".join(part.text for part in parts if isinstance(part, Text)))
    return FrozenList(_part(part, kind) for part in parts)


def _part(part: Part, kind: str) -> FrozenDict:
    wire: dict[str, Any]
    if isinstance(part, Text):
        if part.kind == "refusal":
            wire = {"type": "refusal", "refusal": clean(part.text)}
        else:
            wire = {"type": kind, "text": clean(part.text)}
            if kind == "output_text":
                wire["annotations"] = FrozenList()
    elif part.kind in _TAKEN:
        wire = {"type": f"input_{part.kind}", **_media_source(part)}
    else:
        what = f"{part.alt}: a Responses request cannot carry {part.kind}; describe it in text instead"
        raise MediaError(what, name=part.alt, value=part.kind)
    return with_opaque(wire, part.opaque, _FORM)


def _media_source(part: Media) -> dict[str, Any]:
    file_id = file_id_of(part, _FORM)
    if file_id is not None:
        return {"file_id": file_id}
    if part.kind == "image":
        return {"image_url": data_url(part)}
    if isinstance(part.source, Url):
        return {"file_url": str(part.source)}
    return {"filename": part.label, "file_data": data_url(part)}
