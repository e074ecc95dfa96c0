"""`untrusted_sources`: the sources of the untrusted text in a composition."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from agentkit_prompts.context.items import Document, RecalledMessage
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.templates.spans import Segment

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent

SourceKind: TypeAlias = Literal[
    "user",
    "assistant",
    "tool",
    "document",
    "fact",
    "recalled",
    "summary",
    "skill",
    "kwarg",
    "tool_description",
    "provider_tool",
    "prompt",
]
"""Kind of a source of untrusted text; see `UntrustedSource`."""

_KINDS: Mapping[str, SourceKind] = {
    "user_input": "user",
    "documents": "document",
    "knowledge": "fact",
    "recalled": "recalled",
    "summary": "summary",
    "skills": "skill",
    "loaded_skills": "skill",
    "tools": "tool_description",
}
"""Kinds of the values of a context, by the first name of their pointers."""
_HISTORIES = ("conversation", "intermediate")
_LAYER = re.compile(r"\w+(?:\[\d+\])?")
_ITEM = re.compile(rf"\b({'|'.join((*_KINDS, *_HISTORIES, 'additional_kwargs'))})\b(?:\[(\d+)\])?(\.\w+)?")


class UntrustedSource(NamedTuple):
    """A source of untrusted text in a prompt.

    `assistant` is a reply of the model, `kwarg` an additional kwarg of the input, `tool_description` a tool of a
    server, `provider_tool` a tool that runs at the provider, whose results any reply can contain, and `prompt` a prompt
    class with custom code.
    """

    kind: SourceKind
    layer: str
    """Row of the layer table, such as `before_input[0]`, `intermediate` or `tools`."""
    pointer: str
    """Path in the context, such as `documents[3]` or `intermediate[1]`; empty for a prompt class with custom code."""
    origin: str = ""
    """Name of the tool, label of the document, source of the fact, session of the recalled message, name of the skill;
    empty for other sources."""


def untrusted_sources(composition: CallContent) -> tuple[UntrustedSource, ...]:
    """Return each source of untrusted text in a composition once, in the order in which the text is sent."""
    context = composition.context
    sources = (
        *_from_tools(composition),
        *_from_segments(composition.system.segments(), context),
        *_from_messages(composition, "conversation"),
        *_from_segments(composition.user.segments(), context),
        *_from_messages(composition, "intermediate"),
        *_from_segments(composition.closing.segments(), context),
    )
    return tuple(dict.fromkeys(sources))


def _from_tools(composition: CallContent) -> Iterator[UntrustedSource]:
    for number, tool in enumerate(composition.tools):
        if tool.native is not None:
            yield UntrustedSource("provider_tool", "tools", f"tools[{number}]", tool.name)
        elif tool.trust == "untrusted":
            yield UntrustedSource("tool_description", "tools", f"tools[{number}]", tool.name)


def _from_messages(
    composition: CallContent, history: Literal["conversation", "intermediate"]
) -> Iterator[UntrustedSource]:
    names: dict[str, str] = {}
    for message, number in composition.placed(history):
        names.update({call.id: call.name for call in message.tool_calls})
        yield _of_message(message, history, f"{history}[{number}]", names)


def _of_message(message: Message, layer: str, pointer: str, names: Mapping[str, str]) -> UntrustedSource:
    if message.role == "tool":
        origin = names.get(message.tool_call_id or "", message.name or "")
        return UntrustedSource("tool", layer, pointer, origin)
    if message.role == "assistant":
        return UntrustedSource("assistant", layer, pointer)
    return UntrustedSource("user", layer, pointer)


def _from_segments(segments: Sequence[Segment], context: PromptContext) -> Iterator[UntrustedSource]:
    for segment in segments:
        if segment.trust == "trusted" or not segment.text.strip():
            continue
        layer = segment.prompt
        match = _LAYER.match(layer)
        if match is not None:
            layer = match[0]
        # The text of one segment can be computed from several values of the context.
        items = [*_ITEM.finditer(segment.pointer)]
        if not items:
            yield UntrustedSource("prompt", layer, segment.pointer)
        for item in items:
            if item[1] == "additional_kwargs":
                yield UntrustedSource("kwarg", layer, item[0])
            else:
                yield _of_value(item[1], item[2], layer, context)


def _of_value(name: str, number: str | None, layer: str, context: PromptContext) -> UntrustedSource:
    """Return the source of a value of the context: a field, or the item of a field with a number."""
    if number is None:
        return UntrustedSource(_KINDS.get(name, "prompt"), layer, name)
    pointer, items = f"{name}[{number}]", getattr(context, name)
    item: Any = None
    if int(number) < len(items):
        item = items[int(number)]
    if isinstance(item, Message):
        return _of_message(item, layer, pointer, {})
    return UntrustedSource(_KINDS.get(name, "prompt"), layer, pointer, _origin(item))


def _origin(item: Any) -> str:
    """Return the origin of an item of a context; empty without an item."""
    if isinstance(item, Document):
        return item.label
    if isinstance(item, RecalledMessage):
        return item.session or item.id
    for name in ("source", "name", "id"):
        value = getattr(item, name, "")
        if value:
            return str(value)
    return ""
