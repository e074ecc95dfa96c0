"""The wire form of messages, recognised by their shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["form_of", "mappings_in"]

_CHAT_PARTS = frozenset(("image_url", "input_audio", "file", "audio_url", "video_url", "refusal"))
_RESPONSES_PARTS = frozenset(("input_text", "output_text", "input_image", "input_file"))
_ANTHROPIC_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", "document"))


def form_of(items: object) -> str:
    """Return the wire form of a list of messages: `openai`, `responses` or `anthropic`."""
    messages = mappings_in(items)
    contents = [message.get("content") for message in messages]
    blocks = [block for content in contents for block in mappings_in(content)]
    types = _types_of(blocks)
    if types & _RESPONSES_PARTS or any(map(_is_item, messages)):
        return "responses"
    if types & _ANTHROPIC_BLOCKS or any("source" in block for block in blocks):
        return "anthropic"
    if types & _CHAT_PARTS or any(map(_is_of_chat, messages)):
        return "openai"
    # Text blocks alone are in both forms. Only Anthropic writes every message as blocks.
    if types and all(isinstance(content, list | tuple) for content in contents):
        return "anthropic"
    return "openai"


def mappings_in(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings of a list; nothing of any other value."""
    if not isinstance(value, list | tuple):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def _types_of(blocks: Iterable[Mapping[str, Any]]) -> set[str]:
    types = [block.get("type") for block in blocks]
    return {kind for kind in types if isinstance(kind, str)}


def _is_item(item: Mapping[str, Any]) -> bool:
    """True for an item of the Responses form that is no message."""
    return "type" in item and "role" not in item


def _is_of_chat(item: Mapping[str, Any]) -> bool:
    """True for a message that only the chat form has."""
    return bool(item.get("tool_calls")) or item.get("role") == "tool"
