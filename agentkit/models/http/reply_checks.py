"""Checks of replies with typed blocks: Anthropic's messages and OpenAI's responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentkit.models.http.call_arguments import arguments_text
from agentkit.models.http.distinct_calls import DistinctCalls
from agentkit.models.http.reader import ProtocolError, check_cut, is_no_call
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.read_messages import read_reply
from agentkit_prompts.errors import MessageError

_ARGUMENTS = {"tool_use": "input", "function_call": "arguments"}
"""Types of tool calls, and the key of their arguments."""
_CALLS = tuple(_ARGUMENTS)


def without_empty_calls(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks of a reply without tool calls whose fields are all empty."""
    return [block for block in blocks if block.get("type") not in _CALLS or not _is_empty_call(block)]


def without_repeated_calls(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks of a stream without tool calls that are an earlier call again, at another index."""
    calls = DistinctCalls()
    distinct: list[dict[str, Any]] = []
    for block in blocks:
        if block.get("type") in _CALLS:
            ids = [_text_of(block.get(key)) for key in ("id", "call_id")]
            if calls.repeats(ids, _text_of(block.get("name")), block.get(_ARGUMENTS[block["type"]])):
                continue
        distinct.append(block)
    return distinct


def _is_empty_call(block: dict[str, Any]) -> bool:
    return is_no_call(block.get(_id_key(block)), block.get("name"), block.get(_ARGUMENTS[block["type"]]))


def checked_calls(
    blocks: Sequence[dict[str, Any]], prefix: str, reason: str | None, *, has_text: bool
) -> list[dict[str, Any]]:
    """Return the tool calls of a reply, each with a unique id, because results are matched by id.

    Arguments in text become readable: without repetition, and decoded if they were encoded twice.

    Args:
        blocks: All blocks of the reply, in order.
        prefix: Prefix of new ids, which replace missing and duplicate ids.
        reason: Finish reason of the reply.
        has_text: True if the reply contains text.

    Raises:
        IncompleteCall: The reply was cut too early to be used.
        ProtocolError: A tool call has no name.
    """
    calls = [block for block in blocks if block.get("type") in _CALLS]
    check_cut(reason, _last_call(blocks), is_empty=not calls and not has_text)
    seen: set[str] = set()
    for number, call in enumerate(calls):
        if not isinstance(call.get("name"), str) or not call["name"]:
            raise ProtocolError(f"the tool call {number} has no name")
        key = _id_key(call)
        call_id = _text_of(call.get(key))
        if not call_id or call_id in seen:
            call_id = f"{prefix}_{number}_{len(seen)}"
        call[key] = call_id
        name = _ARGUMENTS[call["type"]]
        if isinstance(call.get(name), str):
            call[name] = arguments_text(call[name]) or "{}"
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
    # An object is complete; only text may be incomplete. A cut reply has an empty object.
    if not isinstance(arguments, str):
        arguments = "{}" if arguments else ""
    return str(last.get("name") or ""), arguments


def _text_of(value: object) -> str:
    if isinstance(value, str):
        return clean(value)
    return ""


def messages_in(data: Sequence[dict[str, Any]], owner: Owner) -> tuple[Message, ...]:
    """Return data that an endpoint sent as messages.

    Raises:
        ProtocolError: The data is invalid.
    """
    if not data:
        return ()
    try:
        return read_reply(data, owner)
    except MessageError as error:
        raise ProtocolError(str(error)) from None
