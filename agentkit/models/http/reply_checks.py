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

_ARGUMENTS = {"tool_use": "input", "function_call": "arguments"}
"""The types of tool calls, and the key of their arguments."""
_CALLS = tuple(_ARGUMENTS)


def checked_calls(
    blocks: Sequence[dict[str, Any]], prefix: str, *, is_cut: bool, has_text: bool
) -> list[dict[str, Any]]:
    """Return the tool calls of a reply, each with a unique id, because results are matched by it.

    Args:
        blocks: All that the reply has, in order.
        prefix: The beginning of ids in place of those that are missing, or were given to several calls.
        is_cut: True if the reply reached its limit of tokens.
        has_text: True if it has any text.

    Raises:
        IncompleteCall: It was cut too early to be used.
        ProtocolError: A call names no tool.
    """
    calls = [block for block in blocks if block.get("type") in _CALLS]
    if is_cut:
        check_cut(_last_call(blocks), is_empty=not calls and not has_text)
    seen: set[str] = set()
    for number, call in enumerate(calls):
        if not isinstance(call.get("name"), str) or not call["name"]:
            raise ProtocolError(f"the tool call {number} has no name")
        key = "id"
        if "call_id" in call or call["type"] == "function_call":
            key = "call_id"
        call_id = _text_of(call.get(key))
        if not call_id or call_id in seen:
            call_id = f"{prefix}_{number}_{len(seen)}"
        call[key] = call_id
        seen.add(call_id)
    return calls


def _last_call(blocks: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    """Return name and arguments of the call that a reply ends in; None if it ends in something else."""
    if not blocks or blocks[-1].get("type") not in _CALLS:
        return None
    last = blocks[-1]
    arguments = last.get(_ARGUMENTS[last["type"]])
    # An object was sent whole; only text may be half a call.
    if not isinstance(arguments, str):
        arguments = ""
    return str(last.get("name") or ""), arguments


def _text_of(value: object) -> str:
    if isinstance(value, str):
        return clean(value)
    return ""


def messages_in(data: Sequence[dict[str, Any]], form: Literal["anthropic", "responses"]) -> tuple[Message, ...]:
    """Return what was received as messages.

    Raises:
        ProtocolError: It cannot be read.
    """
    if not data:
        return ()
    try:
        return read_messages(data, form=form, is_linked=False)
    except MessageError as error:
        raise ProtocolError(str(error)) from None
