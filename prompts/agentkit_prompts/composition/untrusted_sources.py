"""`untrusted_sources`: the sources of the untrusted text in a composition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from agentkit_prompts.composition.context_path import KWARGS, ContextPath, paths_of
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
    "todos": "assistant",
    "skills": "skill",
    "loaded_skills": "skill",
    "tools": "tool_description",
}
"""Kinds of the values of a context, by the first name of their pointers."""
_SHOWN = frozenset({*_KINDS, "conversation", "intermediate", KWARGS})
"""First names of the paths of untrusted values; other values are trusted or part of a prompt."""
_LAYER = re.compile(r"\w+(?:\[\d+\])?")


class UntrustedSource(NamedTuple):
    """A source of untrusted text in a prompt.

    `assistant` is a reply of the model, or its list of tasks, `kwarg` an additional kwarg of the input,
    `tool_description` a tool of a server, `provider_tool` a tool that runs at the provider, whose results any reply can
    contain, and `prompt` a prompt class with custom code.
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
        *_from_messages(composition.placed("conversation"), "conversation", "conversation"),
        *_from_segments(composition.user.segments(), context),
        *_from_messages(composition.placed("intermediate"), "intermediate", "intermediate"),
        *_from_segments(composition.closing.segments(), context),
    )
    return tuple(dict.fromkeys(sources))


def _from_tools(composition: CallContent) -> Iterator[UntrustedSource]:
    for number, tool in enumerate(composition.tools):
        if tool.native is not None:
            yield UntrustedSource("provider_tool", "tools", f"tools[{number}]", tool.name)
        elif tool.trust == "untrusted":
            yield UntrustedSource("tool_description", "tools", f"tools[{number}]", tool.name)


def _from_messages(messages: Iterable[tuple[Message, int]], layer: str, history: str) -> Iterator[UntrustedSource]:
    """Yield the sources of messages, each with its index in a history of the context."""
    names: dict[str, str] = {}
    for message, number in messages:
        names.update({call.id: call.name for call in message.tool_calls})
        yield _of_message(message, layer, f"{history}[{number}]", names)


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
        paths = [path for path in paths_of(segment.pointer) if path.root in _SHOWN]
        if not paths:
            yield UntrustedSource("prompt", layer, segment.pointer)
        for path in paths:
            yield from _from_value(path, layer, context)


def _from_value(path: ContextPath, layer: str, context: PromptContext) -> Iterator[UntrustedSource]:
    """Yield the source of a value of the context: a kwarg, a field, or an item of a field; for a whole history, the
    sources of its messages.
    """
    pointer, item = str(path.upto(2)), path.upto(2).value(context.view)
    if path.root == KWARGS:
        yield UntrustedSource("kwarg", layer, pointer)
    elif isinstance(item, Message):
        yield _of_message(item, layer, pointer, {})
    elif path.root == "conversation" or path.root == "intermediate":
        messages = [(message, number) for number, message in enumerate(getattr(context, path.root))]
        yield from _from_messages(messages, layer, path.root)
    elif len(path) > 1 and isinstance(path[1], int):
        yield UntrustedSource(_KINDS[path.root], layer, pointer, _origin(item))
    else:
        yield UntrustedSource(_KINDS[path.root], layer, path.root)


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
