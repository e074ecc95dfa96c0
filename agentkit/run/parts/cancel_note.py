"""The message in a conversation that names the reason of a cancellation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b

from agentkit.errors import AgentDefinitionError
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.errors import brief

MAX_REASON = 2_000
"""Maximum characters of a reason: each result of a cancelled call contains it."""
_log = logging.getLogger("agentkit")


def checked_reason(reason: str) -> str:
    """Return the reason of a cancellation, without spaces at its ends.

    Raises:
        AgentDefinitionError: The reason is not text, or is too long.
    """
    got = brief(reason, 40)
    if isinstance(reason, str) and len(reason) > MAX_REASON:
        got = f"{len(reason):,} characters"
    elif isinstance(reason, str):
        return reason.strip()
    raise AgentDefinitionError(
        f"cancel: reason: expected text of at most {MAX_REASON:,} characters, got {got}; nothing was cancelled",
        name="reason",
    )


def append_cancel_note(open_session: Callable[[], SessionProtocol], run_id: str, reason: str) -> None:
    """Append the reason of a cancellation to a conversation, once per run and reason. Blocks.

    An error is logged: it must not hide the cancellation, which has happened.

    Args:
        open_session: Returns the session of the conversation.
        run_id: Id of the cancelled run.
        reason: Text of the person or the program that cancelled the run.
    """
    text = clean(reason)
    # A run that was cancelled and resumed can be cancelled again, for another reason.
    digest = blake2b(text.encode(), digest_size=6).hexdigest()
    note, key = Message("user", f"The run was cancelled: {text}"), f"{run_id}:cancelled:{digest}"
    try:
        session = open_session()
        with suppress(Exception):
            session.append(note, key=key)
            return
        # Another writer can have appended first: the second try is after the messages of that writer.
        session.append(note, key=key)
    except Exception:
        _log.exception("run %s: the reason of its cancellation could not be stored in its session", run_id)
