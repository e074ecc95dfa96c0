"""Writer of a message in the Anthropic form."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from agentkit_prompts.context.frozen import FrozenDict, FrozenList, freeze
from agentkit_prompts.context.json_form import strict_json
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.opaque import with_opaque
from agentkit_prompts.context.parts import Media, MediaKind, Part, Text
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.sendable_media import (
    IMAGE_TYPES,
    content_of,
    file_id_of,
    image_type,
    sendable_result_part,
)
from agentkit_prompts.errors import MediaError

_ANY_HOST = Owner("anthropic")
_FORM = _ANY_HOST.keys
_ACCEPTED_KINDS: tuple[MediaKind, ...] = ("image", "file")

OPENING = "(The conversation starts here.)"
"""Text of the user message that is inserted before a conversation that starts with the assistant, because the API
rejects such a conversation."""

RoleAndBlocks: TypeAlias = tuple[str, tuple[FrozenDict, ...]]
"""Role and content blocks of a message."""
Keys: TypeAlias = tuple[str, ...]
"""Keys of the opaque data and of the thinking that are written, see `Owner.keys`."""

_PDF = "application/pdf"
_UNKNOWN_TYPE = "application/octet-stream"
_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


def anthropic_message(message: Message) -> RoleAndBlocks:
    """Return the role and the content blocks of one message; no blocks for an empty message."""
    return _role_and_blocks(message, _FORM)


@lru_cache(maxsize=64)
def anthropic_writer(owner: Owner = _ANY_HOST) -> Callable[[Message], RoleAndBlocks]:
    """Return the writer of messages for one endpoint, which includes the data of this endpoint.

    Equal arguments return the same function, because conversations cache the wire forms of messages by function.
    """
    keys = owner.keys
    if keys == _FORM:
        return anthropic_message
    return lambda message: _role_and_blocks(message, keys)


def _role_and_blocks(message: Message, keys: Keys) -> RoleAndBlocks:
    if message.role == "tool":
        return "user", (_result(message, keys),)
    if message.role == "user":
        return "user", tuple(anthropic_blocks(message.parts, keys))
    return message.role, tuple(_blocks_of_reply(message, keys))


def _blocks_of_reply(message: Message, keys: Keys) -> Iterable[FrozenDict]:
    """Return the blocks of a system or assistant message. Without thinking and opaque data, all text is one block."""
    calls = _calls(message, keys)
    thoughts = [thought for thought in message.thinking if thought.provider in keys]
    if thoughts or any(part.opaque for part in message.parts):
        return _with_thinking(message.parts, calls, thoughts, keys)
    text = message.text
    if text.strip():
        return (FrozenDict(type="text", text=text), *calls)
    return calls


def _result(message: Message, keys: Keys) -> FrozenDict:
    """Return the block of a tool message; blank content is omitted, because the API rejects it."""
    wire: dict[str, Any] = {"type": "tool_result", "tool_use_id": _tool_id(message.tool_call_id or "")}
    if isinstance(message.content, str):
        if message.content and not message.content.isspace():
            wire["content"] = message.content
    else:
        blocks = anthropic_blocks([sendable_result_part(part, _ACCEPTED_KINDS) for part in message.content], keys)
        if blocks:
            wire["content"] = FrozenList(blocks)
    return with_opaque(wire, message.opaque, keys)


def _calls(message: Message, keys: Keys) -> list[FrozenDict]:
    # Each call needs exactly one result, so only the first of two calls with the same id is sent.
    unique: dict[str, ToolCall] = {}
    for call in message.tool_calls:
        unique.setdefault(call.id, call)
    calls: list[FrozenDict] = []
    for call in unique.values():
        wire = {"type": "tool_use", "id": _tool_id(call.id), "name": call.name, "input": _arguments(call.arguments)}
        calls.append(with_opaque(wire, call.opaque, keys))
    return calls


def _with_thinking(
    parts: Iterable[Part], calls: Iterable[FrozenDict], thinking: Iterable[Thinking], keys: Keys
) -> Iterator[FrozenDict]:
    """Yield the blocks of text and calls of an assistant message, and its thinking at the original positions."""
    waiting = deque(thinking)
    texts = [anthropic_blocks([Text(part.alt) if isinstance(part, Media) else part], keys) for part in parts]
    for place, blocks in enumerate([*texts, *[[call] for call in calls]]):
        # The API rejects thinking at another position.
        while waiting and waiting[0].at <= place:
            yield _thought(waiting.popleft())
        yield from blocks
    yield from map(_thought, waiting)


def _thought(thought: Thinking) -> FrozenDict:
    whole = thought.opaque.get(thought.provider)
    if isinstance(whole, Mapping) and "type" in whole:
        return FrozenDict(freeze(whole))
    if thought.redacted is not None:
        return FrozenDict(type="redacted_thinking", data=thought.redacted)
    if thought.signature is None:
        return FrozenDict(type="thinking", thinking=thought.text)
    return FrozenDict(type="thinking", thinking=thought.text, signature=thought.signature)


def _tool_id(name: str) -> str:
    """Return an id with the characters that the API accepts; different ids stay different."""
    if name and not _NOT_IN_ID.search(name):
        return name
    # A hash, because two ids can differ only in characters that are replaced.
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{_NOT_IN_ID.sub('_', name)}_{digest}"


def _arguments(text: str) -> FrozenDict:
    """Return the arguments as an object. Text that is not a JSON object becomes the value of `invalid_arguments`."""
    if not text.strip():
        return FrozenDict()
    text = clean(text)
    try:
        arguments = freeze(strict_json(text))
        # An escape of one half of a character cannot be sent as text.
        json.dumps(arguments, ensure_ascii=False).encode()
    # A ContextError of `freeze` and a UnicodeEncodeError are ValueErrors.
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, FrozenDict):
        return arguments
    return FrozenDict(invalid_arguments=text)


def anthropic_blocks(parts: Iterable[Part], keys: Keys = _FORM) -> list[FrozenDict]:
    """Return the content blocks of parts; blank text is left out.

    Raises:
        MediaError: The API does not accept the media, or a file cannot be read.
    """
    blocks: list[FrozenDict] = []
    for part in parts:
        if not isinstance(part, Text):
            blocks.append(_media(part, keys))
        elif part.text.strip():
            text = FrozenDict(type="text", text=part.text)
            blocks.append(with_opaque(text, part.opaque, keys))
    return blocks


def _media(part: Media, keys: Keys) -> FrozenDict:
    wire: dict[str, Any]
    if part.kind == "image":
        wire = {"type": "image", "source": _source(part, _image, keys)}
    elif part.kind == "file":
        wire = {"type": "document", "title": part.label, "source": _source(part, _document, keys)}
    else:
        reason = f"{part.alt}: an Anthropic request cannot contain {part.kind}; describe it in text instead"
        raise MediaError(reason, name=part.alt, value=part.kind)
    return with_opaque(wire, part.opaque, keys)


def _source(part: Media, write: Callable[[Media, bytes, str], FrozenDict], keys: Keys) -> FrozenDict:
    """Return the source of media: the id of a file at the provider, an address that the provider fetches, or the
    content as `write` returns it.
    """
    file_id = file_id_of(part, keys)
    if file_id is not None:
        return FrozenDict(type="file", file_id=file_id)
    data, mime = content_of(part)
    if data is not None:
        return write(part, data, mime)
    # Without a media type, the document at an address is assumed to be a PDF.
    if part.kind == "file" and mime not in (_PDF, _UNKNOWN_TYPE):
        if not _is_text(mime):
            raise _refused(part, mime)
        reason = f"{part.alt}: Anthropic fetches PDFs only; download it and pass its bytes"
        raise MediaError(reason, name=part.alt, value=mime)
    return FrozenDict(type="url", url=str(part.source))


def _image(part: Media, data: bytes, mime: str) -> FrozenDict:
    if part.media_type is None:
        mime = image_type(data) or mime
    if mime in IMAGE_TYPES:
        return FrozenDict(type="base64", media_type=mime, data=base64.b64encode(data).decode("ascii"))
    reason = f"{part.alt}: Anthropic accepts {', '.join(sorted(IMAGE_TYPES))}, not {mime}; convert it first"
    raise MediaError(reason, name=part.alt, value=mime)


def _document(part: Media, data: bytes, mime: str) -> FrozenDict:
    if mime == _PDF or (mime == _UNKNOWN_TYPE and data.startswith(b"%PDF-")):
        return FrozenDict(type="base64", media_type=_PDF, data=base64.b64encode(data).decode("ascii"))
    if not _is_text(mime):
        raise _refused(part, mime)
    try:
        return FrozenDict(type="text", media_type="text/plain", data=data.decode("utf-8"))
    except UnicodeDecodeError as error:
        reason = f"{part.alt}: is not UTF-8 text ({error}); convert it first"
        raise MediaError(reason, name=part.alt) from error


def _is_text(mime: str) -> bool:
    return mime.startswith("text/") or mime in ("application/json", "application/xml")


def _refused(part: Media, mime: str) -> MediaError:
    reason = f"{part.alt}: Anthropic accepts PDF and text documents, not {mime}; convert it first"
    return MediaError(reason, name=part.alt, value=mime)
