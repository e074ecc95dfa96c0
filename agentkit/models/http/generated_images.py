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

__all__ = ["image_at", "image_in_item", "with_images"]


def image_in_item(item: Mapping[str, Any]) -> Image | None:
    """Return the image of an item of the Responses API; None for any other item, or without image data."""
    data = item.get("result")
    if item.get("type") != GENERATED or not isinstance(data, str) or not data:
        return None
    kind = item.get("output_format")
    if not isinstance(kind, str) or not kind.isalnum():
        kind = "png"
    try:
        return Image(base64.b64decode(data, validate=True), media_type=f"image/{kind}")
    except (ValueError, MediaError):
        return None


def image_at(entry: object) -> Image | None:
    """Return the image of a content part of a chat completion, with a data URL or a web address; None otherwise."""
    if not isinstance(entry, Mapping):
        return None
    source = entry.get("image_url")
    if isinstance(source, Mapping):
        source = source.get("url")
    if not isinstance(source, str) or not source.startswith(("data:image/", "https://", "http://")):
        return None
    head, _, data = source.partition(",")
    try:
        if head.startswith("data:") and head.endswith(";base64"):
            media_type = head.removeprefix("data:").removesuffix(";base64")
            return Image(base64.b64decode(data, validate=True), media_type=media_type)
        return Image(Url(source))
    except (ValueError, MediaError):
        return None


def with_images(message: Message, images: Iterable[Image]) -> Message:
    """Return a message with images after its other content."""
    parts: list[Part] = [*message.parts]
    if isinstance(message.content, str):
        parts = [Text(message.content)] if message.content else []
    return replace(message, content=(*parts, *images))
