"""What is checked of every reply, in whatever form it came: that it was not cut in half, and that calls have ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentkit.models.http.reply_reader import IncompleteCall, ProtocolError
from agentkit_prompts.context.wire.clean import clean

__all__ = ["calls_in", "check_call", "check_cut"]

_CALLS = ("tool_use", "function_call")


def check_cut(tool: object = None, *, is_empty: bool = False) -> None:
    """Refuse a reply that reached its limit of tokens too early to be used.

    Args:
        tool: The name of the tool in whose arguments it was cut; None where it was not.
        is_empty: Whether there are neither text nor calls.

    Raises:
        IncompleteCall: It was cut there.
    """
    if tool is not None:
        raise IncompleteCall(f"inside the arguments of the tool {str(tool)!r}")
    if is_empty:
        raise IncompleteCall("before the model wrote anything that can be read, such as while it was thinking")


def calls_in(blocks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is read as a tool call, whichever form it belongs to."""
    return [block for block in blocks if block.get("type") in _CALLS]


def check_call(call: dict[str, Any], start: str, number: int, seen: set[str]) -> None:
    """Give a call an id that none of those `seen` has: results are matched by it.

    Raises:
        ProtocolError: It names no tool.
    """
    if not isinstance(call.get("name"), str) or not call["name"]:
        raise ProtocolError(f"the tool call {number} has no name")
    key = "call_id" if "call_id" in call or call["type"] == "function_call" else "id"
    name = clean(call[key]) if isinstance(call.get(key), str) else ""
    if not name or name in seen:
        name = f"{start}_{number}_{len(seen)}"
    call[key] = name
    seen.add(name)
