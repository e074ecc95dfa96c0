"""Events of a run for its listener; a run without a listener creates no events.

Events are immutable by convention: frozen dataclasses would take twice as long to create.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar

from agentkit.models.model import Delta, Reply
from agentkit.run.engine.run_result import RunResult
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.run_inbox import SentMessage
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import Document, Fact, RecalledMessage
from agentkit_prompts.hints import hinted
from agentkit_tools.calling.tool_result import ToolResult

Answer = TypeVar("Answer", default=Any)


@dataclass(slots=True)
class Recalled:
    """The memory was searched."""

    query: str
    documents: tuple[Document, ...]
    knowledge: tuple[Fact, ...] = ()
    degraded: tuple[str, ...] = ()
    """Error messages of parts of the recall that failed."""
    recalled: tuple[RecalledMessage, ...] = ()
    """Messages of earlier conversations."""


@dataclass(slots=True)
class ConversationCompacted:
    """The prompt omits the first messages of the conversation."""

    messages: int
    """Number of omitted messages."""
    summary: str | None
    """Summary of the omitted messages."""


@dataclass(slots=True)
class PromptComposed:
    """A prompt is about to be sent."""

    step: int
    composition: Composition


@hinted
@dataclass(slots=True)
class TextDelta:
    """A piece of the text of a reply."""

    step: int
    text: str
    is_refusal: bool = False
    """True if the text is a refusal of the model."""


@hinted
@dataclass(slots=True)
class ThinkingDelta:
    """A piece of the thinking text before the answer."""

    step: int
    text: str


@dataclass(slots=True)
class ArgumentsDelta:
    """A piece of the arguments of a tool call, as JSON text."""

    step: int
    text: str
    call: int
    """Index of the call in the reply, from 0."""
    name: str
    """Name of the tool; can be incomplete while the reply arrives."""


@dataclass(slots=True)
class ModelFellBack:
    """A model failed, and the next model receives the request; see `FallbackModel`."""

    step: int
    reason: str
    model: str
    """Name of the next model."""


@dataclass(slots=True)
class PartialOutput:
    """A further part of a typed answer arrived."""

    step: int
    output: Any
    """The answer so far, as JSON data: not validated, and its last text can be incomplete."""


@dataclass(slots=True)
class ModelReplied:
    """The model replied, with text, tool calls or both."""

    step: int
    reply: Reply


@dataclass(slots=True)
class ApprovalAsked:
    """Tool calls wait for a decision."""

    step: int
    calls: tuple[ToolCall, ...]


@dataclass(slots=True)
class ApprovalGiven:
    """A tool call was approved or denied."""

    step: int
    call: ToolCall
    decision: Decision


@hinted
@dataclass(slots=True)
class ToolStarted:
    """A tool call is about to run."""

    step: int
    call: ToolCall


@dataclass(slots=True)
class ToolProgress:
    """Progress that a tool reported. While the listener is busy, only the latest progress of a call is queued."""

    step: int
    call: ToolCall
    message: str
    done: float | None = None
    """Completed work, in units of the tool."""
    total: float | None = None
    """Total work, or None if unknown."""


@hinted
@dataclass(slots=True)
class ToolFinished:
    """A tool call finished, with a result or an error."""

    step: int
    result: ToolResult


@dataclass(slots=True)
class MessageReceived:
    """The run received a message that was sent to it while it ran."""

    step: int
    """Number of model calls before the message."""
    sent: SentMessage


@dataclass(slots=True)
class Nested:
    """An event of an agent that runs as a tool, up to its `RunFinished`."""

    call_id: str
    """Id of the tool call."""
    name: str
    """Name of the tool."""
    event: Event


@dataclass(slots=True)
class RunFinished(Generic[Answer]):
    """The run finished with an answer. Always the last event."""

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
    | MessageReceived
    | Nested
    | RunFinished[Answer]
)


def delta_event(step: int, delta: Delta) -> TextDelta | ThinkingDelta | ArgumentsDelta | ModelFellBack:
    """Return the event of a delta."""
    if delta.kind == "thinking":
        return ThinkingDelta(step, delta.text)
    if delta.kind == "arguments":
        return ArgumentsDelta(step, delta.text, delta.call, delta.name)
    if delta.kind == "fallback":
        return ModelFellBack(step, delta.text, delta.name)
    return TextDelta(step, delta.text, delta.kind == "refusal")
