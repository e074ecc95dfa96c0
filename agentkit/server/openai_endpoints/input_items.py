"""Input items of a response, as the Responses API lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Audio, Part, Text, Video
from agentkit_prompts.context.wire.write_openai_responses import responses_items

__all__ = ["input_items"]

_ID_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
"""Prefixes of the ids of items by type."""


def input_items(messages: Sequence[Message], run_id: str) -> list[dict[str, Any]]:
    """Return messages as items, each with an id that depends on the run and the position only."""
    rows = [item for message in messages for item in responses_items(_representable(message))]
    return [_listed(row, f"{run_id}{index:04}") for index, row in enumerate(rows)]


def _representable(message: Message) -> Message:
    """Return a message in which media that the form does not have are replaced by their descriptions."""
    if not any(isinstance(part, Audio | Video) for part in message.parts):
        return message
    return replace(message, content=tuple(_described(message.parts)))


def _described(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        if isinstance(part, Audio | Video):
            yield Text(part.alt)
        else:
            yield part


def _listed(item: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    row = {"type": "message", **item}
    prefix = _ID_PREFIXES.get(row["type"], "item")
    row = {"id": f"{prefix}_{suffix}", **row}
    if row["type"] != "reasoning":
        row.setdefault("status", "completed")
    if row["type"] == "message":
        row["content"] = _parts(row["role"], row["content"])
    return row


def _parts(role: str, content: Any) -> list[dict[str, Any]]:
    """Return the content of a message as a list of parts."""
    if not isinstance(content, str):
        return [_part(part) for part in content]
    if role == "assistant":
        return [{"type": "output_text", "text": content, "annotations": []}]
    return [{"type": "input_text", "text": content}]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "input_image":
        return {"detail": "auto", **part}
    return dict(part)
