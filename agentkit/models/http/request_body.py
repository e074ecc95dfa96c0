"""Encoding of request bodies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentkit_prompts.context.frozen import FrozenDict
from agentkit_prompts.context.wire.clean import clean

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def body_bytes(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON, in which U+FFFD replaces lone surrogates.

    Read-only items of its lists, such as earlier messages, are encoded only once.
    """
    fields = [f"{_encode(key)}:{_value_json(value)}" for key, value in body.items()]
    return clean(f"{{{','.join(fields)}}}").encode()


def _value_json(value: Any) -> str:
    if not isinstance(value, list):
        return _encode(value)
    return f"[{','.join(map(_item_json, value))}]"


def _item_json(item: object) -> str:
    if type(item) is not FrozenDict:
        return _encode(item)
    try:
        return item.json
    except AttributeError:
        item.json = text = _encode(item)
        return text
