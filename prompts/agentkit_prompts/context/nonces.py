"""The nonce of the fences of a session, and how it is broken wherever else it stands."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.items import Example, ToolSpec
from agentkit_prompts.context.messages import Message

__all__ = ["break_nonce", "nonce_of", "without_nonce"]

T = TypeVar("T")

_MAX_DEPTH = 100


def nonce_of(session_key: str) -> str:
    """Return the nonce of a session, 16 hex digits."""
    return hashlib.blake2b(session_key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def break_nonce(text: str, nonce: str) -> str:
    """Return text in which the nonce does not stand, also where copies of it overlap."""
    while nonce in text:
        text = text.replace(nonce, f"{nonce[:1]}\u200b{nonce[1:]}")
    return text


def without_nonce(value: T, nonce: str) -> T:
    """Return a value of a context in whose texts the nonce does not stand; the same object if it stood nowhere.

    Who learned the nonce, from an answer of the model or a log, could open or close a fence from outside of it.
    """
    found: T = _broken(value, nonce, 0)
    return found


def _broken(value: Any, nonce: str, depth: int) -> Any:
    if isinstance(value, str):
        return value if nonce not in value else break_nonce(value, nonce)
    if value is None or isinstance(value, bool | int | float | bytes) or depth > _MAX_DEPTH:
        return value
    if type(value) is Message and type(value.content) is str and not (value.tool_calls or value.thinking):
        named = value.name, value.tool_call_id  # most messages: a walk over all fields takes twenty times as long
        if nonce not in value.content and not any(nonce in name for name in named if name):
            return value
    if isinstance(value, ToolSpec):  # the developer's stays as it is, and so does the name, which calls are made by
        if value.trust == "trusted" or nonce not in value.json:
            return value
        described, parameters = (_broken(one, nonce, depth + 1) for one in (value.description, value.parameters))
        return replace(value, description=described, parameters=parameters)
    if isinstance(value, Example) and value.trust == "trusted":
        return value
    if isinstance(value, Conversation):
        made = [_broken(message, nonce, depth + 1) for message in value]
        return value if all(map(_is, made, value)) else Conversation(made)
    if isinstance(value, list | tuple):
        made = [_broken(item, nonce, depth + 1) for item in value]
        return value if all(map(_is, made, value)) else type(value)(made)
    if isinstance(value, Mapping):
        pairs = {_broken(key, nonce, depth + 1): _broken(item, nonce, depth + 1) for key, item in value.items()}
        is_same = [*pairs] == [*value] and all(map(_is, pairs.values(), value.values()))
        return value if is_same else type(value)(pairs)  # type: ignore[call-arg]
    if is_dataclass(value) and not isinstance(value, type):
        given = {item.name: getattr(value, item.name) for item in fields(value) if item.init}
        changed = {name: made for name, item in given.items() if (made := _broken(item, nonce, depth + 1)) is not item}
        return replace(value, **changed) if changed else value
    return value


def _is(one: object, other: object) -> bool:
    return one is other
