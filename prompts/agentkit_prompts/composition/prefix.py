"""The prefix of a composition that a provider can cache: its cache points and its hash."""

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
    from agentkit_prompts.composition.call_content import CallContent


_Part: TypeAlias = Literal["tools", "static", "session", "conversation"]


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """Cache point: a position up to which the payload is the same in several calls."""

    after: _Part
    """The content that ends at the point: the tools, the prompts that are static or that change per session, or the
    conversation."""
    message: int
    """Index of the message that contains the point; -1 after the tools."""
    offset: int
    """Number of characters of the message before the point."""
    tokens: int
    """Number of tokens before the point."""


def breakpoints(composition: CallContent) -> tuple[Breakpoint, ...]:
    """Return at most four cache points: after the tools, the static prompts, the prompts of the session, and the
    conversation.
    """
    token_counts = composition.tools_and_output.tokens(composition.counter)
    points: list[Breakpoint] = []
    if composition.tools:
        points.append(Breakpoint("tools", -1, 0, token_counts.tools))
    for part, row in _last_rows(composition).items():
        message, offset, tokens = 0, 0, token_counts.tools
        if isinstance(row, PromptRow):
            offset = row.end
            tokens += MESSAGE_OVERHEAD + tokens_until(row.section.segments(), offset, composition.counter)
        else:
            message = row.message + len(row.history) - 1
            offset = len(composition.marked_text(message))
            if composition.sends_system:
                tokens += MESSAGE_OVERHEAD + composition.system.tokens(composition.counter)
            tokens += row.history.total(token_counts.of_message)
        points.append(Breakpoint(part, message, offset, tokens))
    return tuple(points)


def _last_rows(composition: CallContent) -> dict[_Part, Row]:
    """Return the last row of each part before the first text that changes every turn, because a cache stores a prefix
    only.
    """
    last: dict[_Part, Row] = {}
    part: _Part = "static"
    for row in rows_of(composition):
        if isinstance(row, HistoryRow):
            # The conversation is the first history; after it comes the input, which changes every turn.
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


def prefix(composition: CallContent) -> tuple[str, int]:
    """Return the hash and the number of tokens of the content before the first text that changes every turn.

    The hashed content is the tools, the stable prompts of `system` and, if all of `system` is stable, the conversation.
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
