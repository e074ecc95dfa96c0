"""Checks of replies with typed blocks: Anthropic's messages and OpenAI's responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from agentkit.models.http.reader import ProtocolError, check_cut
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.errors import MessageError

__all__ = ["checked_calls", "messages_in"]

_ARGUMENTS = {"tool_use": "input", "function_call": "arguments"}
"""Types of tool calls, and the key of their arguments."""
_CALLS = tuple(_ARGUMENTS)


def checked_calls(
    blocks: Sequence[dict[str, Any]], prefix: str, *, is_cut: bool, has_text: bool
) -> list[dict[str, Any]]:
    """Return the tool calls of a reply, each with a unique id, because results are matched by id.

    Args:
        blocks: All blocks of the reply, in order.
        prefix: Prefix of new ids, which replace missing and duplicate ids.
        is_cut: True if the reply reached its token limit.
        has_text: True if the reply contains text.

    Raises:
        IncompleteCall: The reply was cut too early to be used.
        ProtocolError: A tool call has no name.
    """
    calls = [block for block in blocks if block.get("type") in _CALLS]
    if is_cut:
        check_cut(_last_call(blocks), is_empty=not calls and not has_text)
    seen: set[str] = set()
    for number, call in enumerate(calls):
        if not isinstance(call.get("name"), str) or not call["name"]:
            raise ProtocolError(f"the tool call {number} has no name")
        key = _id_key(call)
        call_id = _text_of(call.get(key))
        if not call_id or call_id in seen:
            call_id = f"{prefix}_{number}_{len(seen)}"
        call[key] = call_id
        seen.add(call_id)
    return calls


def _id_key(call: dict[str, Any]) -> str:
    if "call_id" in call or call["type"] == "function_call":
        return "call_id"
    return "id"


def _last_call(blocks: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    """Return name and arguments of the tool call at the end of a reply; None if another block is the last."""
    if not blocks or blocks[-1].get("type") not in _CALLS:
        return None
    last = blocks[-1]
    arguments = last.get(_ARGUMENTS[last["type"]])
    # An object is complete; only text may be incomplete arguments.
    if not isinstance(arguments, str):
        arguments = ""
    return str(last.get("name") or ""), arguments


def _text_of(value: object) -> str:
    if isinstance(value, str):
        return clean(value)
    return ""


def messages_in(data: Sequence[dict[str, Any]], form: Literal["anthropic", "responses"]) -> tuple[Message, ...]:
    """Return received data as messages.

    Raises:
        ProtocolError: The data is invalid.
    """
    if not data:
        return ()
    try:
        return read_messages(data, form=form, is_linked=False)
    except MessageError as error:
        raise ProtocolError(str(error)) from None
