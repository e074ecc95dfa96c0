"""The nonce of the fences of a session, and how it is broken wherever else it stands."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.frozen import FrozenList, ReadOnlyDict
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
    found: T = _Walk(nonce).broken(value, 0)
    return found


class _Walk:
    """A walk over one value. What stands at several places of the same depth is looked at once."""

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce
        self.known: dict[tuple[int, int], tuple[Any, Any]] = {}
        """By identity and depth: a value, kept so that its identity stays its own, and what it became."""

    def broken(self, value: Any, depth: int) -> Any:
        """Return a value without the nonce in its texts."""
        nonce = self.nonce
        if isinstance(value, str):
            return value if nonce not in value else break_nonce(value, nonce)
        if value is None or isinstance(value, bool | int | float | bytes) or depth > _MAX_DEPTH:
            return value
        if type(value) is Message and type(value.content) is str and not (value.tool_calls or value.thinking):
            named = value.name, value.tool_call_id  # most messages: a walk over all fields takes twenty times as long
            if nonce not in value.content and not any(nonce in name for name in named if name):
                return value
        place = id(value), depth
        if place not in self.known:
            self.known[place] = value, self._made_of(value, depth + 1)
        return self.known[place][1]

    def _made_of(self, value: Any, depth: int) -> Any:
        broken = self.broken
        if isinstance(value, ToolSpec):  # the developer's stays as it is, and so does the name, which calls are made by
            if value.trust == "trusted" or self.nonce not in value.json:
                return value
            return replace(
                value, description=broken(value.description, depth), parameters=broken(value.parameters, depth)
            )
        if isinstance(value, Example) and value.trust == "trusted":
            return value
        if isinstance(value, Conversation | list | tuple):
            made = [broken(item, depth) for item in value]
            return value if all(map(_is, made, value)) else _like(value)(made)
        if isinstance(value, Mapping):
            pairs = {broken(key, depth): broken(item, depth) for key, item in value.items()}
            is_same = [*pairs] == [*value] and all(map(_is, pairs.values(), value.values()))
            return value if is_same else _like(value)(pairs)
        if is_dataclass(value) and not isinstance(value, type):
            given = {item.name: getattr(value, item.name) for item in fields(value) if item.init}
            changed = {name: made for name, item in given.items() if (made := broken(item, depth)) is not item}
            return replace(value, **changed) if changed else value
        return value


def _like(value: Any) -> Any:
    """Return what makes such a container of its items; a plain one where others may take other arguments."""
    if isinstance(value, tuple):
        return getattr(value, "_make", tuple)  # a named tuple stays one
    if isinstance(value, Conversation | FrozenList | ReadOnlyDict):
        return type(value)
    return list if isinstance(value, list) else dict


def _is(one: object, other: object) -> bool:
    return one is other
