"""Nonce of the fences of a session, and its removal from all other text."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.frozen import FrozenList, ReadOnlyDict
from agentkit_prompts.context.items import Example, ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.limits import MAX_DEPTH

T = TypeVar("T")

_ATOMS = (type(None), bool, int, float, bytes)


def nonce_of(session_key: str) -> str:
    """Return the nonce of a session, 16 hex digits."""
    return hashlib.blake2b(session_key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def break_nonce(text: str, nonce: str) -> str:
    """Return text in which a zero-width space breaks each copy of the nonce."""
    # Repeat, because copies can overlap, and a broken copy can form a new copy.
    while nonce in text:
        text = text.replace(nonce, f"{nonce[:1]}\u200b{nonce[1:]}")
    return text


def without_nonce(value: T, nonce: str) -> T:
    """Return a value of a context with each copy of the nonce in its texts broken; the same object without a copy.

    An attacker who has read the nonce in an answer of the model or a log could use it to open or close a fence.
    """
    result: T = _Walk(nonce).broken(value, 0)
    return result


class _Walk:
    """Walk over one value. An object at several places of the same depth is visited once."""

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce
        self.results: dict[tuple[int, int], tuple[Any, Any]] = {}
        """The value and its result, by the `id` of the value and its depth. The stored value keeps its `id` in use."""

    def broken(self, value: Any, depth: int) -> Any:
        """Return a value without the nonce in its texts."""
        if isinstance(value, str):
            return break_nonce(value, self.nonce)
        if depth > MAX_DEPTH or isinstance(value, _ATOMS) or self._is_clean_message(value):
            return value
        place = id(value), depth
        if place not in self.results:
            self.results[place] = value, self._rebuilt(value, depth + 1)
        return self.results[place][1]

    def _is_clean_message(self, value: object) -> bool:
        """True for a text message without the nonce. A walk over all its fields would take twenty times as long."""
        if type(value) is not Message or type(value.content) is not str or value.tool_calls or value.thinking:
            return False
        texts = (value.content, value.name or "", value.tool_call_id or "")
        return not any(self.nonce in text for text in texts)

    def _rebuilt(self, value: Any, depth: int) -> Any:
        """Return a container or object without the nonce in its values; the same object if nothing changed."""
        if isinstance(value, ToolSpec):
            return self._rebuilt_tool(value, depth)
        # Examples of the developer are trusted; other examples come from a store or a user.
        if isinstance(value, Example) and value.trust == "trusted":
            return value
        if isinstance(value, Conversation | list | tuple):
            return self._rebuilt_sequence(value, depth)
        if isinstance(value, Mapping):
            return self._rebuilt_mapping(value, depth)
        if is_dataclass(value) and not isinstance(value, type):
            return self._rebuilt_object(value, depth)
        return value

    def _rebuilt_tool(self, tool: ToolSpec, depth: int) -> ToolSpec:
        # Text of the developer is unchanged. The name is also unchanged, because calls refer to it.
        if tool.trust == "trusted" or self.nonce not in tool.json:
            return tool
        description = self.broken(tool.description, depth)
        return replace(tool, description=description, parameters=self.broken(tool.parameters, depth))

    def _rebuilt_sequence(self, value: Any, depth: int) -> Any:
        items = [self.broken(item, depth) for item in value]
        if all(map(operator.is_, items, value)):
            return value
        if isinstance(value, tuple):
            # Keep the type of a named tuple.
            return getattr(value, "_make", tuple)(items)
        if isinstance(value, Conversation | FrozenList):
            return type(value)(items)
        return items

    def _rebuilt_mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        pairs = {self.broken(key, depth): self.broken(item, depth) for key, item in value.items()}
        # Keys can contain the nonce, too.
        if [*pairs] == [*value] and all(map(operator.is_, pairs.values(), value.values())):
            return value
        if isinstance(value, ReadOnlyDict):
            return type(value)(pairs)
        return pairs

    def _rebuilt_object(self, value: Any, depth: int) -> Any:
        changes: dict[str, Any] = {}
        # Fields without `init` are derived from the other fields, and might not have a value yet.
        for field in filter(operator.attrgetter("init"), fields(value)):
            before = getattr(value, field.name)
            after = self.broken(before, depth)
            if after is not before:
                changes[field.name] = after
        if not changes:
            return value
        return replace(value, **changes)
