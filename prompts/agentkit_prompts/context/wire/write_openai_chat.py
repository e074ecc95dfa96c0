"""Writer of a message in the form of OpenAI chat completions, which most servers accept."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

from agentkit_prompts.context.frozen import FrozenDict, FrozenList, freeze
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.opaque import with_opaque
from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.sendable_media import (
    audio_type,
    content_of,
    data_url,
    file_id_of,
    sendable_result_part,
    without_media,
)
from agentkit_prompts.errors import MediaError

THOUGHT_PARTS = ("thinking", "reasoning")
"""Types of content parts with thinking: Mistral and Databricks send them."""
_ANY_HOST = Owner("openai")
_FORM = _ANY_HOST.keys
_AUDIO_FORMATS = {
    **dict.fromkeys(("mpeg", "mpeg3", "mpeg-3", "mpg", "mpegaudio"), "mp3"),
    **dict.fromkeys(("wave", "vnd.wave", "pn-wav"), "wav"),
    **dict.fromkeys(("mp4", "m4a"), "m4a"),
}
"""Names of audio formats in requests, by the subtype of the media type. OpenAI accepts wav and mp3; servers with the
same form accept more formats, so that other subtypes are sent unchanged."""


def openai_message(message: Message) -> FrozenDict:
    """Return the wire form of one message, with the opaque data whose provider is `openai`."""
    return _message(message, _FORM)


Required: TypeAlias = Literal["reasoning_content", "short_call_ids", "thought_signature"]
"""Entry that an endpoint requires in messages, also in messages of other models. DeepSeek and Moonshot require the
reasoning in every assistant message; Gemini requires a signature of the first tool call, and its own form of tools;
Mistral requires ids of calls with nine letters and digits."""
_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
_NO_SIGNATURE = "skip_thought_signature_validator"
"""Signature that Google defines for a call of another model."""


@lru_cache(maxsize=64)
def openai_writer(owner: Owner = _ANY_HOST, required: Required | None = None) -> Callable[[Message], FrozenDict]:
    """Return the writer of messages for one endpoint, with the opaque data of this endpoint.

    Equal arguments return the same function, because conversations cache the wire forms of messages by function.
    """
    keys = owner.keys
    if required is None and keys == _FORM:
        return openai_message

    def has_images(message: Message) -> bool:
        data = (message.opaque.get(key) for key in keys)
        return any(isinstance(entries, Mapping) and "images" in entries for entries in data)

    def write(message: Message) -> FrozenDict:
        return _completed(_message(without_media(message, has_images), keys), required)

    return write


def _completed(wire: FrozenDict, required: Required | None) -> FrozenDict:
    """Return the wire form of a message with the required entry."""
    if required == "short_call_ids":
        return _with_short_ids(wire)
    if required is None or wire["role"] != "assistant":
        return wire
    if required == "reasoning_content":
        if "reasoning_content" in wire:
            return wire
        return FrozenDict({**wire, "reasoning_content": ""})
    calls = wire.get("tool_calls")
    # Gemini checks the signature of the first call of a step only.
    if not calls or "thought_signature" in str(calls[0].get("extra_content")):
        return wire
    google = FrozenDict(google=FrozenDict(thought_signature=_NO_SIGNATURE))
    first = FrozenDict({**calls[0], "extra_content": google})
    return FrozenDict({**wire, "tool_calls": FrozenList([first, *calls[1:]])})


def _with_short_ids(wire: FrozenDict) -> FrozenDict:
    """Return a message in which each id of a call has nine letters and digits; equal ids stay equal."""
    if wire["role"] == "tool":
        return FrozenDict({**wire, "tool_call_id": _short_id(wire["tool_call_id"])})
    calls = wire.get("tool_calls")
    if not calls:
        return wire
    short = FrozenList([FrozenDict({**call, "id": _short_id(call["id"])}) for call in calls])
    return FrozenDict({**wire, "tool_calls": short})


def _short_id(id_: str) -> str:
    if _SHORT_ID.fullmatch(id_):
        return id_
    return hashlib.sha256(id_.encode("utf-8", "replace")).hexdigest()[:9]


def _message(message: Message, providers: tuple[str, ...]) -> FrozenDict:
    wire: dict[str, Any] = {"role": message.role}
    content = _content(message, wire, providers)
    if message.role == "tool":
        wire["tool_call_id"] = message.tool_call_id
        wire["content"] = content
    elif message.tool_calls:
        wire["content"] = content or None
        wire["tool_calls"] = FrozenList([_call(call, providers) for call in message.tool_calls])
    else:
        if message.name:
            wire["name"] = message.name
        wire["content"] = content
    _add_thoughts(wire, message.thinking, providers)
    return with_opaque(wire, message.opaque, providers)


def _add_thoughts(wire: dict[str, Any], thinking: Iterable[Thinking], providers: tuple[str, ...]) -> None:
    """Add the thinking for these providers: parts of the content, the entries as the provider sent them, or
    `reasoning_content`.
    """
    parts: list[Thinking] = []
    for thought in thinking:
        if thought.provider not in providers:
            continue
        data = thought.opaque.get(thought.provider)
        # Stored data cannot become another part of the content.
        if isinstance(data, Mapping) and data.get("type") in THOUGHT_PARTS:
            parts.append(thought)
        else:
            _add_missing(wire, data or {"reasoning_content": thought.text})
    if parts:
        wire["content"] = _with_thoughts(wire.get("content"), parts)


def _with_thoughts(content: Any, thoughts: Iterable[Thinking]) -> FrozenList:
    """Return a content as parts, with thinking before the part that it preceded."""
    parts: list[Any] = []
    if isinstance(content, str) and content:
        parts = [FrozenDict(type="text", text=content)]
    elif isinstance(content, list | tuple):
        parts = [*content]
    for number, thought in enumerate(thoughts):
        parts.insert(min(thought.at, len(parts)) + number, freeze(thought.opaque[thought.provider]))
    return FrozenList(parts)


def _content(message: Message, wire: dict[str, Any], providers: tuple[str, ...]) -> Any:
    """Return the content of a message; if the content is only a refusal, set `refusal` in `wire` and return None."""
    content = message.content
    if isinstance(content, str):
        return clean(content)
    if message.role == "tool":
        return clean("".join(map(_text_of_result, content)))
    if len(content) == 1 and content[0].kind == "refusal":
        wire["refusal"] = clean(message.text)
        return None
    parts = FrozenList(openai_part(part, providers) for part in content)
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        # One text is sent as `str`, because a list with only one text could also be a message in another wire form.
        return parts[0]["text"]
    return parts


def _text_of_result(part: Part) -> str:
    """Return the text of a part of a tool result, for media the alt text: the media are sent in the next message."""
    result = sendable_result_part(part)
    if isinstance(result, Text):
        return result.text
    return cast("Media", part).alt


def _add_missing(wire: dict[str, Any], entries: Mapping[str, Any]) -> None:
    for key, value in entries.items():
        if key not in wire:
            wire[key] = freeze(value)


def _call(call: ToolCall, providers: tuple[str, ...]) -> FrozenDict:
    function = FrozenDict(name=call.name, arguments=clean(call.arguments))
    wire = FrozenDict(id=call.id, type="function", function=function)
    return with_opaque(wire, call.opaque, providers)


def openai_part(part: Part, providers: tuple[str, ...] = _FORM) -> FrozenDict:
    """Return the wire form of a content part.

    Raises:
        MediaError: The format cannot represent the part, or its file cannot be read.
    """
    if isinstance(part, Text):
        return with_opaque({"type": part.kind, part.kind: clean(part.text)}, part.opaque, providers)
    return with_opaque(_media(part, file_id_of(part, providers)), part.opaque, providers)


def _media(part: Media, file_id: str | None) -> dict[str, Any]:
    if part.kind == "file":
        file = FrozenDict(file_id=file_id)
        if file_id is None:
            file = FrozenDict(filename=part.label, file_data=data_url(part))
        return {"type": "file", "file": file}
    if part.kind == "image" and file_id is None:
        return {"type": "image_url", "image_url": FrozenDict(url=data_url(part))}
    if part.kind == "audio" and file_id is None:
        return {"type": "input_audio", "input_audio": _audio(part)}
    reason = f"{part.alt}: an OpenAI chat request cannot contain {part.kind}; describe it in text instead"
    raise MediaError(reason, name=part.alt, value=part.kind)


def _audio(part: Media) -> FrozenDict:
    data, mime = content_of(part)
    if data is None:
        reason = f"{part.alt}: an OpenAI chat request contains audio as bytes, not as an address; download it first"
        raise MediaError(reason, name=part.alt, value=str(part.source))
    # The name of a file can be wrong, and bytes without a media type have none: the first bytes decide.
    mime = audio_type(data) or mime
    subtype = mime.partition(";")[0].strip().lower().rsplit("/", 1)[-1].removeprefix("x-")
    return FrozenDict(data=base64.b64encode(data).decode("ascii"), format=_AUDIO_FORMATS.get(subtype, subtype))


def media_of_result(message: Message) -> tuple[FrozenDict, ...]:
    """Return the media of a tool message that can be sent, each after a text part that names its origin."""
    if message.role != "tool" or isinstance(message.content, str):
        return ()
    content: list[FrozenDict] = []
    for part in message.content:
        result = sendable_result_part(part)
        if isinstance(part, Media) and isinstance(result, Media):
            # A tool message can contain only text, so the caller sends the media in a user message.
            origin = f"{part.alt}, returned by the tool {message.name or 'called'} ({message.tool_call_id}):"
            content += (FrozenDict(type="text", text=clean(origin)), openai_part(result))
    return tuple(content)
