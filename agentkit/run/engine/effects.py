"""Effects: what the loop asks for and a driver does. Nothing a run decides or learns happens outside of them.

They are not frozen, as that would make each of them twice as slow to build; treat them as if they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentkit.models.model import NO_USAGE, Usage
from agentkit.output.output_spec import OutputValidator
from agentkit.run.parts.decisions import Decision
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext

__all__ = [
    "Append",
    "AskApproval",
    "Begin",
    "Beginning",
    "CallModel",
    "CallTools",
    "CheckOutput",
    "Compact",
    "Effect",
    "Equip",
    "Recall",
    "SelectExamples",
]


@dataclass(slots=True)
class Beginning:
    """Where a run begins."""

    conversation: Conversation
    """The messages before the run."""
    done: tuple[Message, ...] = ()
    """The messages of this run that are stored already, the user's message first: an earlier attempt was cut short."""


@dataclass(slots=True)
class Begin:
    """Read the conversation that the run goes on with. Answered with a `Beginning`."""

    run_id: str
    goes_on: bool = False
    """Whether there is no new input: what follows the last message of the user is done already."""
    at: tuple[int, int] | None = None
    """How many messages stand before the run, and how many of its own, where that is known already."""


@dataclass(slots=True)
class Compact:
    """Decide how much of the conversation is shown, and summarise the rest. Answered with `Compacted`."""

    ctx: PromptContext


@dataclass(slots=True)
class Equip:
    """Make the tools of this run. Answered with the tools by name."""

    ctx: PromptContext


@dataclass(slots=True)
class SelectExamples:
    """Let the example selectors choose. Answered with the selections."""

    ctx: PromptContext


@dataclass(slots=True)
class Recall:
    """Find what memory knows about `query`. Answered with `Found`: documents, facts and messages, best first."""

    query: str
    visible: int | None = None
    """How many of the latest messages of the conversation the prompt shows; None for all."""


@dataclass(slots=True)
class Append:
    """Keep messages at the end of the conversation.

    Answered with nothing; where a run goes on from its journal, with the message that asked the model to repair the
    answer that is kept, if there was one: the output type may be another now.
    """

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
    """Ask whether calls may run. Answered with the decisions, by the id of the call; no decision: none was needed."""

    calls: tuple[ToolCall, ...]
    step: int


@dataclass(slots=True)
class CallTools:
    """Run calls. Answered with one `ToolResult`, that of whichever call ended first, and what inner runs spent on it.

    The loop asks again for the calls that are left. A driver starts all calls when it is asked first.
    """

    calls: tuple[ToolCall, ...]
    step: int
    decisions: Mapping[str, Decision]
    """What a person decided, by the id of the call."""
    usage: Usage = NO_USAGE
    """What the run used so far."""
    messages: tuple[Sequence[Message], ...] = ()
    """The messages until here, the one with the calls last, in pieces."""


@dataclass(slots=True)
class CheckOutput:
    """Call the validators with an answer. Answered with `Checked`."""

    output: Any
    validators: Sequence[tuple[OutputValidator, bool]]
    step: int


Effect: TypeAlias = (
    CheckOutput | Begin | Compact | Equip | SelectExamples | Recall | Append | CallModel | AskApproval | CallTools
)
