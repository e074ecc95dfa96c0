"""`messages_of`: reads the messages of a request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from agentkit.ground.threads import in_thread
from agentkit.server.server_errors import BadRequest
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.errors import MessageError

_MAX_READ_INLINE = 200
"""Maximum number of messages that are validated on the event loop; longer lists are validated in a thread."""


async def messages_of(data: Any, name: str, form: str, before: Sequence[Message] = ()) -> tuple[Message, ...]:
    """Return the messages of a request.

    Args:
        data: The messages as JSON data.
        name: The field of the request, for errors.
        form: The wire format of the messages.
        before: The messages before them, which results of tool calls may refer to.

    Raises:
        BadRequest: A message is invalid. The error lists all problems.
    """
    read = partial(read_messages, data, where=name, form=form, before=before)
    try:
        if len(data) < _MAX_READ_INLINE:
            return read()
        return await in_thread(read)
    except MessageError as error:
        raise BadRequest(str(error), param=name, code="invalid_messages") from error
