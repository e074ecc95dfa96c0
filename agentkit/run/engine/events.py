"""Events: what happens in a run, for those who listen. Without a listener no event is made.

They are not frozen, as that would make each of them twice as slow to build; treat them as if they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar

from agentkit.models.model import Delta, Reply
from agentkit.run.engine.loop import RunResult
from agentkit.run.parts.decisions import Decision
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import Document, Fact, RecalledMessage
from agentkit_tools.calling.tool_result import ToolResult

__all__ = [
    "ApprovalAsked",
    "ApprovalGiven",
    "ArgumentsDelta",
    "ConversationCompacted",
    "Event",
    "ModelFellBack",
    "ModelReplied",
    "Nested",
    "PartialOutput",
    "PromptComposed",
    "Recalled",
    "RunFinished",
    "TextDelta",
    "ThinkingDelta",
    "ToolFinished",
    "ToolProgress",
    "ToolStarted",
    "delta_event",
]

Answer = TypeVar("Answer", default=Any)


@dataclass(slots=True)
class Recalled:
    """Memory answered."""

    query: str
    documents: tuple[Document, ...]
    knowledge: tuple[Fact, ...] = ()
    degraded: tuple[str, ...] = ()
    """What memory could not do; it answered with what works."""
    recalled: tuple[RecalledMessage, ...] = ()
    """Messages of earlier conversations."""


@dataclass(slots=True)
class ConversationCompacted:
    """The first messages of the conversation are not shown."""

    messages: int
    summary: str | None
    """What is shown in their place."""


@dataclass(slots=True)
class PromptComposed:
    """This is about to be sent."""

    step: int
    composition: Composition


@dataclass(slots=True)
class TextDelta:
    """A piece of the answer arrived."""

    step: int
    text: str
    is_refusal: bool = False
    """Whether the model refuses to answer, and says so."""


@dataclass(slots=True)
class ThinkingDelta:
    """A piece of what the model thinks before it answers arrived."""

    step: int
    text: str


@dataclass(slots=True)
class ArgumentsDelta:
    """A piece of the arguments of a tool call arrived: JSON text."""

    step: int
    text: str
    call: int
    """Which call of the reply it belongs to, from 0."""
    name: str
    """The tool that is called, as far as its name is known."""


@dataclass(slots=True)
class ModelFellBack:
    """A model could not answer, and another one is asked: see `FallbackModel`."""

    step: int
    reason: str
    model: str
    """The one that is asked now."""


@dataclass(slots=True)
class PartialOutput:
    """The answer of a type has grown."""

    step: int
    output: Any
    """What there is of it, as JSON data: nothing is validated yet, and a text at the end may be half of one."""


@dataclass(slots=True)
class ModelReplied:
    """The model answered, with text, tool calls or both."""

    step: int
    reply: Reply


@dataclass(slots=True)
class ApprovalAsked:
    """Calls wait for a decision."""

    step: int
    calls: tuple[ToolCall, ...]


@dataclass(slots=True)
class ApprovalGiven:
    """A decision was made about a call."""

    step: int
    call: ToolCall
    decision: Decision


@dataclass(slots=True)
class ToolStarted:
    """A tool call is about to run."""

    step: int
    call: ToolCall


@dataclass(slots=True)
class ToolProgress:
    """A tool reported how far it is. Of several that the listener has not taken yet, the last one of a call is kept."""

    step: int
    call: ToolCall
    message: str
    done: float | None = None
    """How much is done, in units of the tool."""
    total: float | None = None
    """How much there is to do, if that is known."""


@dataclass(slots=True)
class ToolFinished:
    """A tool call ended, one way or another."""

    step: int
    result: ToolResult


@dataclass(slots=True)
class Nested:
    """Something happened in an agent that runs as a tool: its events, up to its own `RunFinished`."""

    call_id: str
    """Id of the tool call."""
    name: str
    """Name of the tool."""
    event: Event


@dataclass(slots=True)
class RunFinished(Generic[Answer]):
    """The run ended with an answer. Always the last event."""

    result: RunResult[Answer]


Event: TypeAlias = (
    Recalled
    | ConversationCompacted
    | PromptComposed
    | TextDelta
    | ThinkingDelta
    | ArgumentsDelta
    | ModelFellBack
    | PartialOutput
    | ModelReplied
    | ApprovalAsked
    | ApprovalGiven
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | Nested
    | RunFinished[Answer]
)


def delta_event(step: int, delta: Delta) -> TextDelta | ThinkingDelta | ArgumentsDelta | ModelFellBack:
    """Return the event of a piece of a reply."""
    if delta.kind == "thinking":
        return ThinkingDelta(step, delta.text)
    if delta.kind == "arguments":
        return ArgumentsDelta(step, delta.text, delta.call, delta.name)
    if delta.kind == "fallback":
        return ModelFellBack(step, delta.text, delta.name)
    return TextDelta(step, delta.text, delta.kind == "refusal")
