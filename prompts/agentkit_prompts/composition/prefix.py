"""What a provider can keep cached of a composition: cache points, and the hash of what stays the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

from agentkit_prompts.composition.explain import tokens_until, tool_text
from agentkit_prompts.composition.sections import SEPARATOR
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD, message_tokens

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition

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


def breakpoints(composition: Composition) -> tuple[Breakpoint, ...]:
    """Return at most four cache points, at the borders of what changes never, per session, and per turn."""
    counter = composition.counter
    points: list[Breakpoint] = []
    tokens = composition.declarations.tokens(counter)[0]
    if composition.tools:
        points.append(Breakpoint("tools", -1, 0, tokens))
    if composition.system.text:
        shown = [fragment for fragment in composition.sections[0].fragments if fragment[2].text]
        changes = [prompt.changes for _, prompt, _, _ in shown]
        static = len([*takewhile(lambda volatility: volatility == "static", changes)])
        stable = len([*takewhile(lambda volatility: volatility != "turn", changes)])
        borders: list[tuple[Literal["static", "session"], int]] = [("static", static)]
        if stable > static:
            borders.append(("session", stable))
        for name, count in borders:
            if count:
                offset = len(SEPARATOR.join([rendered.text for _, _, rendered, _ in shown[:count]]))
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


def prefix(composition: Composition) -> tuple[str, int]:
    """Return the hash and the tokens of what comes before the first thing that changes every turn.

    That is: tools, the stable prompts of `system` and, when all of `system` is stable, the conversation.
    """
    state = hashlib.blake2b(digest_size=16)
    for tool in composition.tools:
        _feed(state, "tool", tool_text(tool))
    points = breakpoints(composition)
    if not points:
        return state.hexdigest(), 0
    last = points[-1]
    for number, (message, segments) in enumerate(composition.walk()):
        if number > last.message:
            break
        text = "".join(segment.text for segment in segments)
        _feed(state, message.role, text[: last.offset] if number == last.message else text)
        for name in (message.name, message.tool_call_id):
            if name is not None:
                _feed(state, name)
        for call in message.tool_calls:
            _feed(state, call.id, call.name, call.arguments)
        if message.thinking or message.opaque:
            _feed(state, repr((message.thinking, message.opaque)))
    return state.hexdigest(), last.tokens


def _feed(state: Any, *texts: str) -> None:
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big"))
        state.update(data)
