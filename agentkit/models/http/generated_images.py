"""Images that a model generated, as parts of its message."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Image, Part, Text, Url
from agentkit_prompts.context.wire.write_openai_responses import GENERATED
from agentkit_prompts.errors import MediaError

_INNER = ("image_url", "source", "inline_data", "inlineData")
"""Keys of the object with the address or the data of an image."""
_DATA = ("b64_json", "data")
"""Keys of base64 data."""


def image_in_item(item: Mapping[str, Any]) -> Image | None:
    """Return the image of an item of the Responses API; None for any other item, or without image data."""
    data = item.get("result")
    if item.get("type") != GENERATED or not isinstance(data, str) or not data:
        return None
    kind = item.get("output_format")
    if not isinstance(kind, str) or not kind.isalnum():
        kind = "png"
    return _image_in(data) or _decoded(data, f"image/{kind}")


def image_at(entry: object) -> Image | None:
    """Return the image of a chat completion: an address, a content part with an address, or base64 data.

    None for any other entry. An address is a data URL or a web address. The forms of Anthropic (`source`) and of Gemini
    (`inline_data`) are read too.
    """
    if not isinstance(entry, Mapping):
        return _image_in(entry)
    for key in _INNER:
        inner = entry.get(key)
        if isinstance(inner, str) and key != "source":
            return _image_in(inner)
        if isinstance(inner, Mapping):
            entry = inner
            break
    for key in _DATA:
        if isinstance(data := entry.get(key), str):
            return _image_in(data) or _decoded(data, _media_type(entry))
    return _image_in(entry.get("url"))


def _media_type(entry: Mapping[str, Any]) -> str:
    """Return the media type of an entry; PNG if the server sent none."""
    for key in ("media_type", "mime_type", "mimeType"):
        if isinstance(kind := entry.get(key), str) and kind.startswith("image/"):
            return kind
    return "image/png"


def _image_in(address: object) -> Image | None:
    """Return the image at a data URL or a web address; None for any other value."""
    if not isinstance(address, str) or not address.startswith(("data:image/", "https://", "http://")):
        return None
    head, _, data = address.partition(",")
    if head.startswith("data:") and head.endswith(";base64"):
        return _decoded(data, head.removeprefix("data:").removesuffix(";base64"))
    try:
        return Image(Url(address))
    except (ValueError, MediaError):
        return None


def _decoded(data: str, media_type: str) -> Image | None:
    """Return an image of base64 data; None if the data are invalid."""
    try:
        return Image(base64.b64decode(data, validate=True), media_type=media_type)
    except (ValueError, MediaError):
        return None


def with_images(message: Message, images: Iterable[Image]) -> Message:
    """Return a message with images after its other content."""
    parts: list[Part] = [*message.parts]
    if isinstance(message.content, str):
        parts = [Text(message.content)] if message.content else []
    return replace(message, content=(*parts, *images))
