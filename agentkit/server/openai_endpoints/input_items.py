"""Items of a response: their ids, and the input items as the Responses API lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Audio, Part, Text, Video
from agentkit_prompts.context.wire.write_openai_responses import responses_items

_ID_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
"""Prefixes of the ids of items by type."""
_ID = re.compile(r"[a-z]+_([0-9a-f]{32})(?:_\d+|\d{4,})")
"""Id of an item: the type, the id of a run and the position in its output, after `_`, or in its input."""


def output_item_id(kind: str, run_id: str, index: int) -> str:
    """Return the id of an item of the output of a run; `index` counts the items of this type."""
    return f"{_ID_PREFIXES[kind]}_{run_id}_{index}"


def run_id_of(item_id: str) -> str | None:
    """Return the id of the run whose input or output contains an item; None for an id of another server."""
    match = _ID.fullmatch(item_id)
    if match is None:
        return None
    return match[1]


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
