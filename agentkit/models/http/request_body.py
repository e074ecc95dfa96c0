"""The body of a request as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentkit_prompts.context.frozen import FrozenDict

__all__ = ["body_bytes"]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def body_bytes(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON; what is read-only in its lists, such as earlier messages, is written once in its life."""
    return f"{{{','.join([f'{_encode(key)}:{_written(value)}' for key, value in body.items()])}}}".encode()


def _written(value: Any) -> str:
    if not isinstance(value, list):
        return _encode(value)
    return f"[{','.join([_once(item) if type(item) is FrozenDict else _encode(item) for item in value])}]"


def _once(item: FrozenDict) -> str:
    try:
        return item.json
    except AttributeError:
        item.json = text = _encode(item)
        return text
