"""What Anthropic's messages and OpenAI's responses have in common: content that comes as typed blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from agentkit.models.http.reply_reader import ProtocolError, check_cut
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.errors import MessageError

__all__ = ["checked_calls", "messages_in"]

_CALLS = ("tool_use", "function_call")


def checked_calls(
    blocks: Sequence[dict[str, Any]], prefix: str, *, is_cut: bool, has_text: bool
) -> list[dict[str, Any]]:
    """Return the tool calls of a reply, each with an id that no other one has: results are matched by it.

    Args:
        blocks: All that the reply has, in order.
        prefix: What ids begin with that are missing, or were given to several calls.
        is_cut: Whether the reply reached its limit of tokens.
        has_text: Whether it has any text.

    Raises:
        IncompleteCall: It was cut too early to be used.
        ProtocolError: A call names no tool.
    """
    calls = [block for block in blocks if block.get("type") in _CALLS]
    if is_cut:
        last = None
        if calls and blocks[-1] is calls[-1]:
            given = calls[-1].get("input" if calls[-1]["type"] == "tool_use" else "arguments")
            last = str(calls[-1].get("name") or ""), given if isinstance(given, str) else ""
        check_cut(last, is_empty=not calls and not has_text)
    seen: set[str] = set()
    for number, call in enumerate(calls):
        if not isinstance(call.get("name"), str) or not call["name"]:
            raise ProtocolError(f"the tool call {number} has no name")
        key = "call_id" if "call_id" in call or call["type"] == "function_call" else "id"
        name = clean(call[key]) if isinstance(call.get(key), str) else ""
        if not name or name in seen:
            name = f"{prefix}_{number}_{len(seen)}"
        call[key] = name
        seen.add(name)
    return calls


def messages_in(data: Sequence[dict[str, Any]], form: Literal["anthropic", "responses"]) -> tuple[Message, ...]:
    """Return what was received as messages.

    Raises:
        ProtocolError: It cannot be read.
    """
    try:
        return read_messages(data, form=form, is_linked=False) if data else ()
    except MessageError as error:
        raise ProtocolError(str(error)) from None
