"""Effects: what the loop asks for and a driver does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from agentkit_prompts.composition import Composition
from agentkit_prompts.messages import Message, ToolCall

__all__ = ["Append", "AskApproval", "CallModel", "CallTools", "Effect", "Recall"]


@dataclass(slots=True)
class Recall:
    """Find what memory knows about `query`. Answered with documents, best first."""

    query: str


@dataclass(slots=True)
class Append:
    """Keep messages at the end of the conversation. Answered with nothing."""

    messages: tuple[Message, ...]
    key: str
    """Idempotency key: the same within a run however often the effect is performed."""


@dataclass(slots=True)
class CallModel:
    """Send a composition. Answered with a `Reply`."""

    composition: Composition
    step: int


@dataclass(slots=True)
class AskApproval:
    """Ask whether calls may run. Answered with the ids that may."""

    calls: tuple[ToolCall, ...]
    step: int


@dataclass(slots=True)
class CallTools:
    """Run calls. Answered with one `ToolResult` per call, in the order of the calls."""

    calls: tuple[ToolCall, ...]
    step: int
    approved: frozenset[str]
    """Ids of the calls a person agreed to."""


Effect: TypeAlias = Recall | Append | CallModel | AskApproval | CallTools
