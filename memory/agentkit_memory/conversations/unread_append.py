"""Append to a conversation without reading its messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkit_memory.conversations.branch import Branch
from agentkit_memory.errors import AlreadyUsed, HeadMoved, InvalidArgument
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.errors import MessageError

if TYPE_CHECKING:
    from agentkit_prompts.context.wire.foreign_messages import AnyMessage

_MAX_TRIES = 100
"""Maximum number of tries while other writers append."""
_MAX_ROUND = 256
"""Number of latest messages that are searched for the tool calls of appended results."""


def append_unread(
    branch: Branch,
    appended: Sequence[AnyMessage],
    key: str | None,
    said_at: float | None,
    allow_media: bool,
) -> tuple[Branch, int, Conversation]:
    """Append messages to a branch whose messages were not read, after whatever other writers added.

    Returns:
        The branch (after a rewind, its successor), its `edits`, and the conversation, which is read at its first use.

    Raises:
        StoreError: As `StoredSession.append` does.
    """
    head = 0
    for _ in range(_MAX_TRIES):
        head, edits = branch.state()
        if edits != branch.edits:
            # Another writer may rewind the current branch too, so its state is checked in the next try.
            branch = branch.current()
            continue
        before: list[Message] = []
        # Tool results in the format of a provider are converted with the help of the calls before them.
        if any(not isinstance(each, Message) for each in appended):
            before = [each.message for each in branch.page(most=_MAX_ROUND, newest=True)]
        messages = read_appended(appended, before, allow_media)
        if not messages or branch.append(head, edits, messages, key, said_at):
            return branch, edits, _unread(branch, head + len(messages))
        if key is not None and (seq := branch.seq_of(key)) is not None:
            check_same(branch, key, seq, messages)
            return branch, edits, _unread(branch, head)
    raise HeadMoved(branch.name, head, branch.state()[0])


def _unread(branch: Branch, count: int) -> Conversation:
    def read() -> list[Message]:
        # `state` raises an error for a deleted conversation.
        branch.state()
        return branch.tail(0)[:count]

    return Conversation.unread(read, count)


def read_appended(appended: Sequence[AnyMessage], before: Sequence[Message], allow_media: bool) -> tuple[Message, ...]:
    """Return the messages to append; mappings in the format of a provider are converted.

    Raises:
        InvalidArgument: A value is not a message, or a result does not belong to a call before it.
    """
    try:
        return read_messages(appended, where="append", before=before, allow_media=allow_media)
    except MessageError as error:
        raise InvalidArgument(str(error), problems=error.problems) from error


def check_same(branch: Branch, key: str, seq: int, messages: Sequence[Message]) -> None:
    """Check that the messages that were stored with a key are equal to `messages`.

    A redacted message is equal to any message.

    Raises:
        AlreadyUsed: The messages differ.
    """
    stored = branch.page(after=seq - 1, most=len(messages))
    if len(stored) != len(messages) or any(
        old.message != new and not old.redacted for old, new in zip(stored, messages, strict=True)
    ):
        raise AlreadyUsed.of_key(branch.name, key, seq)
