"""The payload of an OpenAI-compatible chat-completions request."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.sections import to_parts
from agentkit_prompts.composition.targets.tool_media import provable, text_of
from agentkit_prompts.context.frozen import FrozenDict, FrozenList
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.context.prompt_context import ToolSpec, per_toolset
from agentkit_prompts.context.wire import clean
from agentkit_prompts.errors import MediaError

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition
    from agentkit_prompts.context.conversation import Conversation
    from agentkit_prompts.templates.rendered import Rendered

__all__ = ["openai_message", "openai_payload", "openai_tool"]


def openai_payload(composition: Composition) -> dict[str, Any]:
    """Return `{"messages": [...], "tools": [...]}`; no `tools` when there are none. What is inside is read-only.

    A tool message is text only there: media that a tool returned follow in a message of the user, each under the name
    that stands for it in the text. An output schema becomes `response_format`.
    """
    messages = _with_media(composition.conversation)
    system, user = composition.system, composition.user
    if system.text or composition.sends_system:
        messages.insert(0, _rendered("system", system))  # a long history is copied once, not twice
    if user.text or composition.sends_user:
        messages.append(_rendered("user", user))
    if len(composition.intermediate):
        messages += _with_media(composition.intermediate)
        closing = composition.closing
        if closing.text:
            messages.append(_rendered("user", closing))
    payload: dict[str, Any] = {"messages": messages}
    tools = composition.context.tools
    if tools:
        payload["tools"] = per_toolset(tools, openai_tool, _tools)
    if composition.output_schema is not None:
        schema = {"name": "answer", "schema": composition.output_schema}
        payload["response_format"] = {"type": "json_schema", "json_schema": schema}
    return payload


def _tools(tools: tuple[ToolSpec, ...], one: Callable[[ToolSpec], FrozenDict]) -> FrozenList:
    return FrozenList(one(tool) for tool in tools)


def _rendered(role: str, rendered: Rendered) -> FrozenDict:
    if not rendered.media:
        wire = rendered.wire
        if wire is None or wire["role"] != role:
            wire = rendered.wire = FrozenDict(role=role, content=clean(rendered.text))
        return wire
    return FrozenDict(role=role, content=FrozenList(_part(part) for part in to_parts(rendered)))


def _with_media(conversation: Conversation) -> list[FrozenDict]:
    """Return the wire form of messages; after the tool messages of a step the media that they show."""
    messages = conversation.derive(openai_message)
    if not conversation.total(_media_shown):
        return messages
    result: list[FrozenDict] = []
    waiting: list[FrozenDict] = []
    for message, shown in zip(messages, conversation.derive(_tool_media), strict=True):
        if waiting and message["role"] != "tool":
            result.append(FrozenDict(role="user", content=FrozenList(waiting)))
            waiting = []
        result.append(message)
        waiting += shown
    if waiting:
        result.append(FrozenDict(role="user", content=FrozenList(waiting)))
    return result


def _media_shown(message: Message) -> int:
    return len(_tool_media(message))


def _tool_media(message: Message) -> tuple[FrozenDict, ...]:
    """Return the media of a tool message that can be sent, each after a line that says what it is."""
    if message.role != "tool" or isinstance(message.content, str):
        return ()
    shown: list[FrozenDict] = []
    for part in message.content:
        if isinstance(part, Text) or text_of(part):
            continue
        try:
            sent = _part(provable(part))
        except MediaError:
            continue  # the text says so, see `_tool_text`
        origin = f"{part.alt}, returned by the tool {message.name or 'called'} ({message.tool_call_id}):"
        shown += (FrozenDict(type="text", text=clean(origin)), sent)
    return tuple(shown)


def _tool_text(parts: Iterable[Part]) -> str:
    """Return the text of what a tool returned: text files as they are, other media as what stands for them."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif text := text_of(part):
            texts.append(text)
        else:
            try:
                provable(part)
                texts.append(part.alt)
            except MediaError as error:
                texts.append(f"{part.alt} (not shown: {error})")
    return "".join(texts)


def openai_message(message: Message) -> FrozenDict:
    """Return the wire form of one message."""
    content: Any = message.content
    if isinstance(content, str):
        content = clean(content)
    else:
        content = clean(_tool_text(content)) if message.role == "tool" else FrozenList(_part(part) for part in content)
    if message.role == "assistant" and message.tool_calls:
        calls = [
            FrozenDict(
                id=call.id,
                type="function",
                function=FrozenDict(name=call.name, arguments=clean(call.arguments)),
            )
            for call in message.tool_calls
        ]
        return FrozenDict(role="assistant", content=content or None, tool_calls=FrozenList(calls))
    if message.role == "tool":
        return FrozenDict(role="tool", tool_call_id=message.tool_call_id, content=content)
    if message.name:
        return FrozenDict(role=message.role, name=message.name, content=content)
    return FrozenDict(role=message.role, content=content)


def openai_tool(tool: ToolSpec) -> FrozenDict:
    """Return the wire form of one tool."""
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    if tool.strict:
        function["strict"] = True
    return FrozenDict(type="function", function=FrozenDict(function))


def _part(part: Part) -> FrozenDict:
    if isinstance(part, Text):
        return FrozenDict(type="text", text=clean(part.text))
    if part.kind == "image":
        return FrozenDict(type="image_url", image_url=FrozenDict(url=data_url(part)))
    if part.kind == "audio":
        audio = FrozenDict(data=base64.b64encode(part.read()).decode("ascii"), format=part.mime.rsplit("/", 1)[-1])
        return FrozenDict(type="input_audio", input_audio=audio)
    if part.kind == "file":
        return FrozenDict(type="file", file=FrozenDict(filename=part.label, file_data=data_url(part)))
    raise MediaError(f"{part.alt}: an OpenAI chat request cannot carry {part.kind}; describe it in text instead")


def data_url(part: Media) -> str:
    """Return the address of a URL part, or the content of any other as a `data:` URL."""
    if not isinstance(part.source, bytes) and not hasattr(part.source, "read_bytes"):
        return str(part.source)
    return f"data:{part.mime};base64,{base64.b64encode(part.read()).decode('ascii')}"
