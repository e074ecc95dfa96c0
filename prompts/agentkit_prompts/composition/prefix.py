"""What a provider can keep cached of a composition: cache points, and the hash of what stays the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from agentkit_prompts.composition.diff import tokens_until, tool_text
from agentkit_prompts.composition.sections import SEPARATOR
from agentkit_prompts.composition.stored_text import stored_text
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, message_tokens
from agentkit_prompts.tree.volatility import volatility_of

if TYPE_CHECKING:
    from agentkit_prompts.composition.contents import Contents

__all__ = ["Breakpoint", "breakpoints", "prefix"]


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A point up to which the payload stays the same for a while: worth a cache mark."""

    after: Literal["tools", "static", "session", "conversation"]
    message: int
    """Index of the message it lies in; -1 for the tools."""
    offset: int
    """Characters of that message before it."""
    tokens: int
    """Tokens before it."""


def breakpoints(composition: Contents) -> tuple[Breakpoint, ...]:
    """Return at most four cache points, at the borders of what changes never, per session, and per turn."""
    counter = composition.counter
    points: list[Breakpoint] = []
    tokens = composition.declarations.tokens(counter)[0]
    if composition.tools:
        points.append(Breakpoint("tools", -1, 0, tokens))
    if composition.system.text:
        shown = [fragment for fragment in composition.sections[0].fragments if fragment.rendered.text]
        changes = [volatility_of(prompt) for _, prompt, _ in shown]
        static = len([*takewhile(lambda volatility: volatility == "static", changes)])
        stable = len([*takewhile(lambda volatility: volatility != "turn", changes)])
        borders: list[tuple[Literal["static", "session"], int]] = [("static", static)]
        if stable > static:
            borders.append(("session", stable))
        for name, count in borders:
            if count:
                offset = len(SEPARATOR.join([rendered.text for _, _, rendered in shown[:count]]))
                cost = MESSAGE_OVERHEAD + tokens_until(composition.system.segments(), offset, counter)
                points.append(Breakpoint(name, 0, offset, tokens + cost))
        if stable < len(shown):
            return tuple(points)
        tokens += MESSAGE_OVERHEAD + composition.system.tokens(counter)
    elif composition.sends_system:
        tokens += MESSAGE_OVERHEAD
    first = int(composition.sends_system)
    if len(composition.conversation):
        last = first + len(composition.conversation) - 1
        tokens += composition.conversation.total(message_tokens(counter))
        points.append(Breakpoint("conversation", last, len(composition.marked_text(last)), tokens))
    return tuple(points)


def prefix(composition: Contents) -> tuple[str, int]:
    """Return the hash and the tokens of what comes before the first thing that changes every turn.

    That is: tools, the stable prompts of `system` and, when all of `system` is stable, the conversation. What stands in
    the hash for a message of the conversation is made once per message.
    """
    points = breakpoints(composition)
    last = points[-1] if points else Breakpoint("tools", -1, 0, 0)
    seen: list[object] = [tool_text(tool) for tool in composition.tools]
    if last.message >= 0 and composition.sends_system:
        text = composition.system.text
        seen.append(("system", text[: last.offset] if last.after in ("static", "session") else text))
    if last.after == "conversation":
        seen.append(composition.conversation.derive(_hashed))
    return hashlib.blake2b(repr(seen).encode(), digest_size=16).hexdigest(), last.tokens


def _hashed(message: Message) -> bytes:
    """Return a hash of all that is sent of a message."""
    sent = (message.role, stored_text(message), message.name, message.tool_call_id)
    of_calls, of_thinking = ([*map(_values, values)] for values in (message.tool_calls, message.thinking))
    content = repr((sent, of_calls, of_thinking, message.opaque))
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


def _values(one: ToolCall | Thinking) -> tuple[object, ...]:
    return tuple([getattr(one, each.name) for each in fields(one)])
