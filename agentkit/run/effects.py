"""Effects: what the loop asks for and a driver does."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import Message, ToolCall

__all__ = ["Append", "AskApproval", "CallModel", "CallTools", "Effect", "Recall"]


class Recall(NamedTuple):
    """Find what memory knows about `query`. Answered with `Found`: documents and facts, best first."""

    query: str
    visible: int | None = None
    """How many of the latest messages of the conversation the prompt shows; None for all."""


class Append(NamedTuple):
    """Keep messages at the end of the conversation. Answered with nothing."""

    messages: tuple[Message, ...]
    key: str
    """Idempotency key: the same within a run however often the effect is performed."""


class CallModel(NamedTuple):
    """Send a composition. Answered with a `Reply`."""

    composition: Composition
    step: int


class AskApproval(NamedTuple):
    """Ask whether calls may run. Answered with the ids that may."""

    calls: tuple[ToolCall, ...]
    step: int


class CallTools(NamedTuple):
    """Run calls. Answered with one `ToolResult` per call, in their order, and what agents that the tools ran spent."""

    calls: tuple[ToolCall, ...]
    step: int
    approved: frozenset[str]
    """Ids of the calls a person agreed to."""


Effect: TypeAlias = Recall | Append | CallModel | AskApproval | CallTools
