"""Stored form of messages: JSON or, for a plain text, a letter for the role, a colon and the text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

from agentkit_memory.database.rows import corrupt_row, is_decoded
from agentkit_memory.errors import InvalidArgument, StoreVersion
from agentkit_prompts.context.messages import MESSAGE_FORMAT, MESSAGES, Message, Role

MAIN = "main"
"""Name of the first branch of every conversation."""
MAX_SEQ = 2**31 - 1
"""Maximum number of a message in a database."""
_MAX_SHORT = 65_536
"""Maximum characters of messages that are stored within a fraction of a millisecond."""
_PREFIXES: Mapping[str, str] = {"user": "u:", "assistant": "a:", "system": "s:"}
"""Starts of messages that are only a text, by role. The JSON of such a message would be a tenth of its row."""
_ROLES: Mapping[str, Role] = {"u:": "user", "a:": "assistant", "s:": "system"}
"""Roles of messages that are only a text, by the start of the stored form."""
_OPTIONAL = ("tool_calls", "tool_call_id", "name")
"""Fields that are not stored if they are empty."""


def dump(conversation: str, message: Message) -> str:
    """Return the stored form of a message of a conversation.

    Raises:
        InvalidArgument: The message has no JSON form.
    """
    if _is_plain(message):
        return f"{_PREFIXES[message.role]}{message.content}"
    try:
        # Empty fields would take a fourth of the row of a short message.
        empty_fields = {name for name in _OPTIONAL if getattr(message, name) in (None, ())}
        return MESSAGES.dump_json(message, exclude=empty_fields).decode()
    except ValueError as error:
        # The message contains bytes, or text that JSON cannot contain.
        raise InvalidArgument(
            f"conversation {conversation!r}: a message of role {message.role} cannot be stored ({error}); "
            "replace its unpaired surrogates, or store media as files",
            name=conversation,
        ) from error


def _is_plain(message: Message) -> bool:
    """Return True if a message is only a text that every database can store as it is."""
    content = message.content
    if type(content) is not str or message.role not in _PREFIXES or message.name is not None:
        return False
    if message.tool_calls or message.thinking or message.opaque or "\0" in content:
        return False
    return content.isascii() or is_decoded(content)


def load(conversation: str, seq: int, version: int, body: str) -> Message:
    """Return the message of a decoded row.

    Raises:
        StoreVersion: A newer version of agentkit wrote the message.
        StoreCorrupt: The row is corrupt.
    """
    if version > MESSAGE_FORMAT:
        where = f"conversation {conversation!r}, message {seq}"
        raise StoreVersion(
            f"{where}: in format {version}, this agentkit reads up to {MESSAGE_FORMAT}; upgrade agentkit",
            path=where,
            name="format",
            value=version,
        )
    try:
        return read_body(body)
    except ValueError as error:
        raise corrupt_row("messages", seq, "body", f"is corrupt ({error})", f"conversation {conversation!r}") from error


def read_body(body: str) -> Message:
    """Return the message of its stored form.

    Raises:
        ValueError: The stored form is corrupt.
    """
    role = _ROLES.get(body[:2])
    if role is not None:
        return Message(role, body[2:])
    return MESSAGES.validate_json(body)


def stored_texts(body: str) -> list[str]:
    """Return the texts in the stored form of a message, with JSON escapes; none if the JSON is corrupt."""
    if body[:2] in _ROLES:
        return [body[2:]]
    texts: list[str] = []
    values: list[object] = []
    with suppress(ValueError, RecursionError):
        values.append(json.loads(body))
    while values:
        value = values.pop()
        if isinstance(value, str):
            texts.append(json.dumps(value, ensure_ascii=False)[1:-1])
        elif isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, list):
            values.extend(value)
    return texts


def is_short(messages: Sequence[Message]) -> bool:
    """Return True if messages contain only text, of at most 65,536 characters in all."""
    size = 0
    for message in messages:
        if type(message.content) is not str:
            return False
        size += len(message.content) + sum([len(call.arguments) for call in message.tool_calls])
        if message.thinking:
            size += len(message.reasoning)
    return size <= _MAX_SHORT
