"""A run as spans, as plain data: from its journal, whoever ran it and wherever it is read.

The names of spans and attributes are those of the OpenTelemetry GenAI semantic conventions 0.1.0
(https://github.com/open-telemetry/semantic-conventions-genai); what they have no name for begins with `agentkit.`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from agentkit.models.model import Reply, Usage
from agentkit.run.journal.journal_steps import JournalStep
from agentkit.run.journal.sent_layers import SentLayers
from agentkit.run.parts.recaller import Found
from agentkit_tools.calling.tool_result import ToolResult

__all__ = [
    "TraceSpan",
    "layer_attributes",
    "recall_attributes",
    "reply_attributes",
    "run_attributes",
    "tool_attributes",
    "trace",
    "usage_attributes",
]

Attributes = dict[str, Any]


class TraceSpan(TypedDict):
    """One operation of a run, and those inside it."""

    name: str
    """Such as `invoke_agent shop`, `chat gpt-5`, `execute_tool look` or `search_memory`."""
    start: float | None
    """Seconds since 1970: when the operation before it was answered, which is when it could begin. A run that was cut
    short and resumed has the time between in the operation that was done again. None where it is not known."""
    end: float | None
    """Seconds since 1970; None where it has not ended, or is not known."""
    attributes: Attributes
    """Texts, numbers, booleans and lists of texts: no content of messages, tool calls or memory."""
    spans: list[TraceSpan]
    """The operations inside it, in order."""


def trace(name: str, attributes: Attributes, steps: Sequence[JournalStep]) -> TraceSpan:
    """Return a run as a span that contains the spans of its model calls, tool calls and recalls."""
    times = [step.ended for step in steps if step.ended is not None]
    start = end = None
    if times:
        start, end = times[0], times[-1]
    spans = [span for step in steps if (span := _span(step)) is not None]
    return TraceSpan(name=name, start=start, end=end, attributes=attributes, spans=spans)


def _span(step: JournalStep) -> TraceSpan | None:
    """Return the span of a step; None for steps that are part of other spans."""
    inside: list[TraceSpan] = []
    if step.inner is not None:
        inside.append(step.inner.trace())
        if not step.has_result:
            return inside[0]
    if step.kind == "model":
        name, attributes = f"chat {step.answer.model}".rstrip(), reply_attributes(step.answer)
        if step.layers is not None:
            attributes |= layer_attributes(step.layers, step.answer.usage)
    elif step.kind == "tool":
        result = step.answer[0]
        name, attributes = f"execute_tool {result.name}", tool_attributes(result)
    elif step.kind == "recall":
        name, attributes = "search_memory", recall_attributes(step.answer)
    else:
        return None
    return TraceSpan(name=name, start=step.began, end=step.ended, attributes=attributes, spans=inside)


def run_attributes(agent: str, run_id: str, session: str | None) -> Attributes:
    """Return what is known of a run when it begins."""
    found = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent, "agentkit.run.id": run_id}
    return found if session is None else {**found, "gen_ai.conversation.id": session}


def usage_attributes(usage: Usage) -> Attributes:
    """Return tokens and money."""
    found: Attributes = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    if usage.cached_tokens:
        found["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    if usage.money is not None:
        found["agentkit.usage.money"] = usage.money
    return found


def reply_attributes(reply: Reply) -> Attributes:
    """Return what is known of a model call by its reply."""
    found: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.finish_reasons": [str(reply.finish_reason)],
        **usage_attributes(reply.usage),
    }
    return {**found, "gen_ai.response.model": reply.model} if reply.model else found


def layer_attributes(layers: SentLayers, usage: Usage) -> Attributes:
    """Return what the layers of a prompt took, and which part of the prompt came from the provider's cache."""
    found: Attributes = {f"agentkit.layer.{name}.tokens": count for name, count in layers.tokens.items()}
    found["agentkit.prompt.tokens"] = sum(layers.tokens.values())
    if layers.trimmed:
        found["agentkit.prompt.trimmed"] = [*layers.trimmed]
    if usage.input_tokens:
        found["agentkit.prompt.cached_share"] = round(usage.cached_tokens / usage.input_tokens, 4)
    return found


def tool_attributes(result: ToolResult) -> Attributes:
    """Return what is known of a tool call by its result."""
    found = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": result.name,
        "gen_ai.tool.call.id": result.call_id,
        "gen_ai.tool.type": "function",
        "agentkit.tool.status": result.status,
    }
    if result.ok:
        return found
    return {**found, "error.type": result.status if result.error is None else type(result.error).__name__}


def recall_attributes(found: Found) -> Attributes:
    """Return how much was recalled from memory."""
    attributes: Attributes = {
        "gen_ai.operation.name": "search_memory",
        "gen_ai.memory.record.count": len(found.documents) + len(found.knowledge) + len(found.recalled),
    }
    return {**attributes, "agentkit.memory.degraded": len(found.degraded)} if found.degraded else attributes
