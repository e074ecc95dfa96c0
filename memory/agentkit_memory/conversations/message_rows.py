"""Messages as they are stored: JSON with the number of its format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from agentkit_memory.database.rows import corrupt_row
from agentkit_memory.errors import InvalidArgument, StoreVersion
from agentkit_prompts.context.messages import MESSAGE_FORMAT, MESSAGES, Message

__all__ = ["MAIN", "dump", "is_short", "load", "stored_texts"]

MAIN = "main"
"""Name of the branch that every conversation begins with."""
_MAX_SHORT = 65_536
"""Characters that are stored within a fraction of a millisecond."""
_OPTIONAL = ("tool_calls", "tool_call_id", "name")
"""Fields that are not stored where a message does not have them."""


def dump(name: str, message: Message) -> str:
    """Return the stored form of a message.

    Raises:
        InvalidArgument: JSON cannot hold it.
    """
    try:
        # A fourth of the row of a short message would say that it has none of these.
        missing = {each for each in _OPTIONAL if getattr(message, each) in (None, ())}
        return MESSAGES.dump_json(message, exclude=missing).decode()
    except ValueError as error:
        # Bytes, or text that JSON cannot contain.
        raise InvalidArgument(
            f"conversation {name!r}: a message of role {message.role} cannot be stored ({error}); "
            "replace its unpaired surrogates, or store media as files",
            name=name,
        ) from error


def load(name: str, seq: int, version: int, body: str) -> Message:
    """Return the message of a stored form, whose row was decoded.

    Raises:
        StoreVersion: A newer agentkit wrote it.
        StoreCorrupt: It is damaged.
    """
    if version > MESSAGE_FORMAT:
        where = f"conversation {name!r}, message {seq}"
        raise StoreVersion(
            f"{where}: in format {version}, this agentkit reads up to {MESSAGE_FORMAT}; upgrade it",
            path=where,
            name="format",
            value=version,
        )
    try:
        return MESSAGES.validate_json(body)
    except ValueError as error:
        raise corrupt_row("messages", seq, "body", f"is damaged ({error})", f"conversation {name!r}") from error


def stored_texts(body: str) -> list[str]:
    """Return the texts in the stored form of a message, as they stand there; none of one that is damaged."""
    found: list[str] = []
    left: list[object] = []
    with suppress(ValueError, RecursionError):
        left.append(json.loads(body))
    while left:
        value = left.pop()
        if isinstance(value, str):
            found.append(json.dumps(value, ensure_ascii=False)[1:-1])
        elif isinstance(value, dict | list):
            left.extend(value.values() if isinstance(value, dict) else value)
    return found


def is_short(messages: Sequence[Message]) -> bool:
    """Return whether messages are text only, and not long."""
    size = 0
    for message in messages:
        if type(message.content) is not str:
            return False
        size += len(message.content) + sum([len(call.arguments) for call in message.tool_calls])
        size += len(message.reasoning) if message.thinking else 0
    return size <= _MAX_SHORT
