"""The wire form of messages, recognised by the keys of messages and the types of content blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

_CHAT_PARTS = frozenset(("image_url", "input_audio", "file", "audio_url", "video_url", "refusal"))
_RESPONSES_PARTS = frozenset(("input_text", "output_text", "input_image", "input_file"))
_ANTHROPIC_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", "document"))


class _Shape(NamedTuple):
    """Properties of messages that differ between wire forms."""

    messages: Sequence[Mapping[str, Any]]
    contents: Sequence[object]
    """Content of each message."""
    blocks: Sequence[Mapping[str, Any]]
    """Content blocks of all messages."""
    types: frozenset[object]
    """Types of the blocks."""


def form_of(items: object) -> str:
    """Return the wire form of a list of messages: `openai` (the default), `responses` or `anthropic`."""
    messages = mappings_in(items)
    contents = [message.get("content") for message in messages]
    blocks = [block for content in contents for block in mappings_in(content)]
    types = frozenset(filter(_is_text, [block.get("type") for block in blocks]))
    shape = _Shape(messages, contents, blocks, types)
    return next((form for form, matches in _FORMS if matches(shape)), "openai")


def _is_responses(shape: _Shape) -> bool:
    # An item that is not a message has a type instead of a role.
    has_items = any("type" in message and "role" not in message for message in shape.messages)
    return has_items or not shape.types.isdisjoint(_RESPONSES_PARTS)


def _is_anthropic(shape: _Shape) -> bool:
    return not shape.types.isdisjoint(_ANTHROPIC_BLOCKS) or any("source" in block for block in shape.blocks)


def _is_chat(shape: _Shape) -> bool:
    has_tool_traffic = any(message.get("tool_calls") or message.get("role") == "tool" for message in shape.messages)
    return has_tool_traffic or not shape.types.isdisjoint(_CHAT_PARTS)


def _is_all_blocks(shape: _Shape) -> bool:
    # Two forms use text blocks. If every message consists of blocks, Anthropic is the more probable form.
    return bool(shape.types) and all(isinstance(content, list | tuple) for content in shape.contents)


def _is_mistral(shape: _Shape) -> bool:
    # Anthropic's thinking is a text.
    return any(isinstance(block.get("thinking"), list | tuple) for block in shape.blocks)


_FORMS: tuple[tuple[str, Callable[[_Shape], bool]], ...] = (
    ("responses", _is_responses),
    ("openai", _is_mistral),
    ("anthropic", _is_anthropic),
    ("openai", _is_chat),
    ("anthropic", _is_all_blocks),
)
"""Forms and the tests that recognise them, in the order of the tests."""


def mappings_in(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings in a list; empty for any other value."""
    if not isinstance(value, list | tuple):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def _is_text(value: object) -> bool:
    return isinstance(value, str)
