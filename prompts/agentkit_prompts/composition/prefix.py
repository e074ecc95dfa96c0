"""The part of a composition that a provider can keep in its cache: cache points, and the hash of this part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, TypeAlias

from agentkit_prompts.composition.diff import tokens_until, tool_text
from agentkit_prompts.composition.sections import SEPARATOR, Section
from agentkit_prompts.composition.stored_text import stored_text
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, TokenCounter
from agentkit_prompts.tree.volatility import volatility_of

if TYPE_CHECKING:
    from agentkit_prompts.composition.contents import Contents

__all__ = ["Breakpoint", "breakpoints", "prefix"]


_Part: TypeAlias = Literal["tools", "static", "session", "conversation"]


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A point up to which the payload stays the same for a while: worth a cache mark."""

    after: _Part
    message: int
    """Index of the message it lies in; -1 for the tools."""
    offset: int
    """Characters of that message before it."""
    tokens: int
    """Tokens before it."""


def breakpoints(composition: Contents) -> tuple[Breakpoint, ...]:
    """Return at most four cache points, between the parts that change never, per session, and per turn."""
    counter = composition.counter
    declared = composition.declarations.tokens(counter)
    tokens = declared.tools
    points: list[Breakpoint] = []
    if composition.tools:
        points.append(Breakpoint("tools", -1, 0, tokens))
    system = composition.system
    points += _system_points(system, tokens, counter)
    if any(volatility_of(fragment.prompt) == "turn" for fragment in system.fragments if fragment.rendered.text):
        # A cache keeps a prefix, so it ends at the first text that changes every turn.
        return tuple(points)
    first = 0
    if composition.sends_system:
        first = 1
        tokens += MESSAGE_OVERHEAD + system.tokens(counter)
    if len(composition.conversation):
        last = first + len(composition.conversation) - 1
        tokens += composition.conversation.total(declared.of_message)
        points.append(Breakpoint("conversation", last, len(composition.marked_text(last)), tokens))
    return tuple(points)


def _system_points(system: Section, tokens: int, counter: TokenCounter) -> Iterator[Breakpoint]:
    """Yield the cache points in the system message, which comes after so many tokens."""
    shown = [fragment for fragment in system.fragments if fragment.rendered.text]
    volatilities = [volatility_of(fragment.prompt) for fragment in shown]
    static = sum(1 for _ in takewhile(lambda volatility: volatility == "static", volatilities))
    stable = sum(1 for _ in takewhile(lambda volatility: volatility != "turn", volatilities))
    parts: tuple[tuple[_Part, int], ...] = (("static", static), ("session", stable))
    for name, count in parts:
        if not count or (name == "session" and stable == static):
            continue
        offset = len(SEPARATOR.join([fragment.rendered.text for fragment in shown[:count]]))
        cost = MESSAGE_OVERHEAD + tokens_until(system.segments(), offset, counter)
        yield Breakpoint(name, 0, offset, tokens + cost)


def prefix(composition: Contents) -> tuple[str, int]:
    """Return the hash and the tokens of everything before the first part that changes every turn.

    That is: tools, the stable prompts of `system` and, if all of `system` is stable, the conversation. Each message of
    the conversation is hashed once.
    """
    points = breakpoints(composition)
    last = Breakpoint("tools", -1, 0, 0)
    if points:
        last = points[-1]
    seen: list[object] = [tool_text(tool) for tool in composition.tools]
    if last.message >= 0 and composition.sends_system:
        text = composition.system.text
        if last.after in ("static", "session"):
            text = text[: last.offset]
        seen.append(("system", text))
    if last.after == "conversation":
        seen.append(composition.conversation.derive(_hashed))
    return hashlib.blake2b(repr(seen).encode(), digest_size=16).hexdigest(), last.tokens


def _hashed(message: Message) -> bytes:
    """Return a hash of everything that is sent of a message."""
    sent = (message.role, stored_text(message), message.name, message.tool_call_id)
    calls, thinking = [*map(_values, message.tool_calls)], [*map(_values, message.thinking)]
    content = repr((sent, calls, thinking, message.opaque))
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


def _values(one: ToolCall | Thinking) -> tuple[object, ...]:
    return tuple([getattr(one, each.name) for each in fields(one)])
