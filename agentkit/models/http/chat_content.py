"""Content of a message of chat completions, which may be text or parts with text and thinking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from agentkit.models.http.reader import JsonObject, ProtocolError, index_of
from agentkit_prompts.context.wire.write_openai_chat import THOUGHT_PARTS
from agentkit_prompts.errors import brief

_TEXT_KEYS = ("thinking", "reasoning", "summary", "text", "content")
"""Keys of the text of a part with thinking."""
_IMAGE_PARTS = ("image_url", "output_image", "image")
"""Types of parts with generated images."""
_INLINE = ("inline_data", "inlineData")
"""Keys of image data in parts without a type, as Gemini sends them."""


class Content(NamedTuple):
    """Content of a message."""

    text: str
    thoughts: list[JsonObject]
    """Parts with thinking."""
    has_text: bool
    """True if the content is text, also if it is empty."""
    is_thought_last: bool
    """True if all thinking follows the text."""
    images: Sequence[JsonObject] = ()
    """Parts with images."""


def content_of(content: object) -> Content:
    """Return the text and the thinking of a content.

    Raises:
        ProtocolError: The content is neither text nor a list.
    """
    if content is None or isinstance(content, str):
        return Content(content or "", [], content is not None, False)
    if not isinstance(content, list):
        raise ProtocolError(f"content: expected text, got {brief(content)}")
    texts: list[str] = []
    thoughts: list[JsonObject] = []
    images: list[JsonObject] = []
    is_thought_last = False
    # Parts of other types are not text.
    for part in content:
        if isinstance(part, dict) and part.get("type") in THOUGHT_PARTS:
            is_thought_last = is_thought_last or (bool(texts) and not thoughts)
            thoughts.append(part)
        elif isinstance(part, dict) and (part.get("type") in _IMAGE_PARTS or not part.keys().isdisjoint(_INLINE)):
            images.append(part)
        elif isinstance(text := _plain_text(part), str):
            texts.append(text)
    return Content("".join(texts), thoughts, bool(texts) or not thoughts, is_thought_last, images)


def _plain_text(part: object) -> object:
    if isinstance(part, dict):
        return part.get("text")
    return part


def thought_text(part: Mapping[str, Any]) -> str:
    """Return the text of a part with thinking."""
    return next((text for key in _TEXT_KEYS if (text := _joined(part.get(key)))), "")


def _joined(value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    texts = [item.get("text") if isinstance(item, Mapping) else item for item in value]
    return "".join([text for text in texts if isinstance(text, str)])


def joined_parts(parts: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the parts with thinking of a stream; pieces of one part are joined."""
    groups: list[list[JsonObject]] = []
    for part in parts:
        # A part that is signed or closed is complete.
        if not groups or groups[-1][-1].get("signature") or groups[-1][-1].get("closed"):
            groups.append([])
        groups[-1].append(part)
    return [_joined_part(group) for group in groups]


def joined_details(details: Sequence[Any]) -> list[Any]:
    """Return reasoning details of a stream; pieces of one text are joined, because its signature signs the whole."""
    joined: list[Any] = []
    for place, group in groupby(details, _place_of_text):
        pieces = [*group]
        joined += pieces if place is None else [_joined_part(pieces)]
    return joined


def _place_of_text(detail: object) -> tuple[str, int] | None:
    """Return the type and the index of a detail with text; None for any other detail, which is complete."""
    if not isinstance(detail, dict) or "data" in detail or (index := index_of(detail.get("index"))) is None:
        return None
    return _type_of(detail), index


def _joined_part(pieces: Sequence[JsonObject]) -> JsonObject:
    values: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            if value is not None:
                values.setdefault(key, []).append(value)
    return {key: _joined_values(key, items) for key, items in values.items()}


def _joined_values(key: str, values: list[Any]) -> Any:
    if all(isinstance(value, list) for value in values):
        items = [item for value in values for item in value]
        if not all(isinstance(item, dict) for item in items):
            return items
        return [_joined_part(list(run)) for _, run in groupby(items, _type_of)]
    if key in _TEXT_KEYS and all(isinstance(value, str) for value in values):
        return "".join(values)
    return values[-1]


def _type_of(item: JsonObject) -> str:
    return str(item.get("type"))
