"""What is checked of every reply, in whatever form it came: that it was not cut in half, and that calls have ids."""

from __future__ import annotations

from typing import Any

from agentkit.models.reply_reader import IncompleteCall, ProtocolError

__all__ = ["check_call", "check_cut"]


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


def check_call(call: dict[str, Any], key: str, start: str, number: int, seen: set[str]) -> None:
    """Give a call an id under `key` that none of those `seen` has: results are matched by it.

    Raises:
        ProtocolError: It names no tool.
    """
    if not isinstance(call.get("name"), str) or not call["name"]:
        raise ProtocolError(f"the tool call {number} has no name")
    name = call.get(key)
    if not isinstance(name, str) or not name or name in seen:
        call[key] = name = f"{start}_{number}_{len(seen)}"
    seen.add(name)
