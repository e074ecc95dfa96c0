"""The part of a composition that a provider can cache: cache points, and the hash of this part."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, TypeAlias

from agentkit_prompts.composition.diff import tokens_until, tool_text
from agentkit_prompts.composition.rows import HistoryRow, PromptRow, Row, rows_of
from agentkit_prompts.composition.stored_text import stored_text
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD
from agentkit_prompts.tree.volatility import volatility_of

if TYPE_CHECKING:
    from agentkit_prompts.composition.contents import Contents

__all__ = ["Breakpoint", "breakpoints", "prefix"]


_Part: TypeAlias = Literal["tools", "static", "session", "conversation"]


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """Cache point: the payload before it is the same in several calls."""

    after: _Part
    message: int
    """Index of its message; -1 for the tools."""
    offset: int
    """Number of characters of the message before the point."""
    tokens: int
    """Number of tokens before the point."""


def breakpoints(composition: Contents) -> tuple[Breakpoint, ...]:
    """Return at most four cache points, between the parts that are static, change per session, and change per turn."""
    declared = composition.declarations.tokens(composition.counter)
    points: list[Breakpoint] = []
    if composition.tools:
        points.append(Breakpoint("tools", -1, 0, declared.tools))
    for part, row in _last_rows(composition).items():
        message, offset, tokens = 0, 0, declared.tools
        if isinstance(row, PromptRow):
            offset = row.end
            tokens += MESSAGE_OVERHEAD + tokens_until(row.section.segments(), offset, composition.counter)
        else:
            message = row.message + len(row.history) - 1
            offset = len(composition.marked_text(message))
            if composition.sends_system:
                tokens += MESSAGE_OVERHEAD + composition.system.tokens(composition.counter)
            tokens += row.history.total(declared.of_message)
        points.append(Breakpoint(part, message, offset, tokens))
    return tuple(points)


def _last_rows(composition: Contents) -> dict[_Part, Row]:
    """Return the last row of each part, up to the first text that changes every turn: a cache stores a prefix."""
    last: dict[_Part, Row] = {}
    part: _Part = "static"
    for row in rows_of(composition):
        if isinstance(row, HistoryRow):
            # The conversation is the first history. The input follows it, which changes every turn.
            if len(row.history):
                last["conversation"] = row
            break
        volatility = volatility_of(row.prompt)
        if row.rendered.text and volatility == "turn":
            break
        if row.rendered.text:
            if volatility == "session":
                part = "session"
            last[part] = row
    return last


def prefix(composition: Contents) -> tuple[str, int]:
    """Return the hash and the tokens of everything before the first part that changes every turn.

    This part contains the tools, the stable prompts of `system` and, if all of `system` is stable, the conversation.
    Each message of the conversation is hashed once.
    """
    points = breakpoints(composition)
    last = Breakpoint("tools", -1, 0, 0)
    if points:
        last = points[-1]
    content: list[object] = [tool_text(tool) for tool in composition.tools]
    if last.message >= 0 and composition.sends_system:
        text = composition.system.text
        if last.after in ("static", "session"):
            text = text[: last.offset]
        content.append(("system", text))
    if last.after == "conversation":
        content.append(composition.conversation.derive(_hashed))
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest(), last.tokens


def _hashed(message: Message) -> bytes:
    """Return a hash of all fields of a message that are sent."""
    sent = (message.role, stored_text(message), message.name, message.tool_call_id)
    calls, thinking = [*map(_values, message.tool_calls)], [*map(_values, message.thinking)]
    content = repr((sent, calls, thinking, message.opaque))
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


def _values(item: ToolCall | Thinking) -> tuple[object, ...]:
    return tuple([getattr(item, field.name) for field in fields(item)])
