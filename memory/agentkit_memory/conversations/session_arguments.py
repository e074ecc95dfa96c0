"""Checks of the arguments of sessions."""

from __future__ import annotations

from agentkit_memory.checks import is_time, is_whole
from agentkit_memory.conversations.message_rows import MAX_SEQ
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.scope import check_name
from agentkit_prompts.errors import brief


def check_append(key: str | None, said_at: float | None) -> None:
    """Check the key and the time of an append.

    Raises:
        InvalidArgument: The key cannot be stored, or the time is invalid.
    """
    if key is not None:
        check_name("idempotency key", key)
    if said_at is not None and not is_time(said_at):
        raise InvalidArgument(f"said_at: expected seconds since 1970, got {brief(said_at)}", name="said_at")


def check_number(name: str, number: object) -> None:
    """Check an argument that is the number of a message; `name` is the name of the argument.

    Raises:
        InvalidArgument: The number is not a whole number that a database can store.
    """
    if not is_whole(number, -MAX_SEQ, MAX_SEQ):
        raise InvalidArgument(f"{name}: expected the number of a message, got {brief(number)}", name=name)


def check_note(name: str, at: int | None) -> None:
    """Check the name of a note, and the number of messages that the note is about.

    Raises:
        InvalidArgument: The name cannot be stored, or the number is invalid.
    """
    check_name("name of a note", name)
    if at is not None:
        check_number("keep_note: at", at)
