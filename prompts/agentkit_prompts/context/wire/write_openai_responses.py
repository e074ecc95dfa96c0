"""A message in the form of OpenAI's Responses: a list of items."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from agentkit_prompts.context.frozen import FrozenDict, FrozenList, freeze
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.opaque import with_opaque
from agentkit_prompts.context.parts import MediaKind, Part, Text, Url
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
        made: dict[str, Any] = {"type": "function_call_output", "call_id": message.tool_call_id}
        made["output"] = _content([of_result(part, _TAKEN) for part in message.parts], "input_text")
        return (with_opaque(made, message.opaque, _FORM),)
    own = message.opaque.get("responses")
    thoughts = [
        (thought.at, FrozenDict(freeze(whole)))
        for thought in message.thinking
        if isinstance(whole := thought.opaque.get("responses"), Mapping) and "type" in whole
    ]
    calls = [_call(call) for call in message.tool_calls]
    if own is not None and ITEMS in own:
        found = _ordered(message.parts, calls, [thought for _, thought in thoughts], own[ITEMS])
        if found is not None:
            return found
        own = None
    items: list[tuple[int, FrozenDict]] = []
    if message.parts or not calls:
        kind = "output_text" if message.role == "assistant" else "input_text"
        is_listed = message.role == "assistant" and own is not None
        item = {"role": message.role, "content": _content(message.parts, kind, is_listed=is_listed)}
        items.append((0, FrozenDict(item) if own is None else with_opaque(item, message.opaque, _FORM)))
    items += enumerate(calls, len(message.parts))
    return tuple([item for _, item in sorted([*thoughts, *items], key=lambda pair: pair[0])])


def _call(call: ToolCall) -> FrozenDict:
    made = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": clean(call.arguments)}
    return with_opaque(made, call.opaque, _FORM)


def _ordered(
    parts: Sequence[Part], calls: Sequence[FrozenDict], thoughts: Sequence[FrozenDict], order: Any
) -> tuple[FrozenDict, ...] | None:
    """Return the items of a reply as they came; None where the message was changed since, and has others."""
    left: dict[str, deque[Any]] = {"parts": deque(parts), "function_call": deque(calls), "thinking": deque(thoughts)}
    made: list[FrozenDict] = []
    for entry in order if isinstance(order, list | tuple) else ():
        kept = dict(entry) if isinstance(entry, Mapping) else {}
        count, kind = kept.pop("parts", None), kept.get("type")
        if isinstance(count, int) and 0 <= count <= len(left["parts"]):
            content = FrozenList([_part(left["parts"].popleft(), "output_text") for _ in range(count)])
            made.append(with_opaque({"role": "assistant", "content": content}, {"responses": kept}, _FORM))
        elif count is None and isinstance(kind, str) and left.get(kind):
            made.append(left[kind].popleft())
        else:
            return None
    return None if any(left.values()) else tuple(made)


def _content(parts: Sequence[Part], kind: str, *, is_listed: bool = False) -> Any:
    if not is_listed and all(isinstance(part, Text) and part.kind == "text" and not part.opaque for part in parts):
        return clean("".join(part.text for part in parts if isinstance(part, Text)))
    return FrozenList(_part(part, kind) for part in parts)


def _part(part: Part, kind: str) -> FrozenDict:
    made: dict[str, Any]
    if isinstance(part, Text):
        made = {"type": "refusal", "refusal": clean(part.text)}
        if part.kind == "text":
            made = {"type": kind, "text": clean(part.text)}
        if kind == "output_text" and part.kind == "text":
            made["annotations"] = FrozenList()
    elif part.kind in _TAKEN:
        known = file_id_of(part, _FORM)
        made = {"type": f"input_{part.kind}"}
        if known is not None:
            made["file_id"] = known
        elif part.kind == "image":
            made["image_url"] = data_url(part)
        elif isinstance(part.source, Url):
            made["file_url"] = str(part.source)
        else:
            made |= {"filename": part.label, "file_data": data_url(part)}
    else:
        what = f"{part.alt}: a Responses request cannot carry {part.kind}; describe it in text instead"
        raise MediaError(what, name=part.alt, value=part.kind)
    return with_opaque(made, part.opaque, _FORM) if part.opaque else FrozenDict(made)
