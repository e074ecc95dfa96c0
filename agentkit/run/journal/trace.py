"""The trace of a run: its journal as spans.

Spans and attributes have the names of the OpenTelemetry GenAI semantic conventions 0.1.0
(https://github.com/open-telemetry/semantic-conventions-genai); attributes outside of the conventions start with
`agentkit.`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from agentkit.models.model import Reply, Usage
from agentkit.run.journal.failed_call import RecordedError
from agentkit.run.journal.journal_steps import JournalStep
from agentkit.run.journal.sent_layers import SentLayers
from agentkit.run.parts.recaller import RecallResult
from agentkit_prompts.context.wire.clean import clean
from agentkit_tools.calling.tool_result import ToolResult

Attributes = dict[str, Any]
_FINISH_REASONS = {"tool_calls": "tool_call", "refusal": "content_filter"}
"""Well-known values of the conventions by finish reasons that have another name here."""


class TraceSpan(TypedDict):
    """One operation of a run, with its inner operations."""

    name: str
    """Such as `invoke_agent shop`, `chat gpt-5`, `execute_tool look` or `search_memory`."""
    start: float | None
    """Seconds since 1970 of the previous result, when the operation could start; None if unknown. In a resumed run, the
    operation that was performed again includes the time between both attempts."""
    end: float | None
    """Seconds since 1970; None if unknown, or if the operation has no result."""
    attributes: Attributes
    """Texts, numbers, booleans and lists of texts, without content of messages, tool calls or memory."""
    spans: list[TraceSpan]
    """Inner operations, in order."""


def trace(name: str, attributes: Attributes, steps: Sequence[JournalStep]) -> TraceSpan:
    """Return a run as a span that contains the spans of its model calls, tool calls and recalls."""
    times = [step.ended for step in steps if step.ended is not None]
    start = end = None
    if times:
        start, end = times[0], times[-1]
    spans = [span for step in steps if (span := _span(step)) is not None]
    return TraceSpan(name=clean(name), start=start, end=end, attributes=encodable(attributes), spans=spans)


def encodable(attributes: Mapping[str, Any]) -> Attributes:
    """Return attributes whose texts can be encoded: exporters lose attributes with lone surrogates."""
    return {clean(name): _encodable(value) for name, value in attributes.items()}


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def _span(step: JournalStep) -> TraceSpan | None:
    """Return the span of a model call, a tool call or a recall; None for other steps."""
    inner_spans: list[TraceSpan] = []
    if step.inner is not None:
        inner_spans.append(step.inner.trace)
        if not step.has_result:
            return inner_spans[0]
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
    return TraceSpan(
        name=clean(name), start=step.began, end=step.ended, attributes=encodable(attributes), spans=inner_spans
    )


def run_attributes(agent: str, run_id: str, session: str | None, tags: Sequence[str] = ()) -> Attributes:
    """Return the attributes of a run at its start."""
    attributes: Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "agentkit.run.id": run_id,
    }
    if session:
        attributes["gen_ai.conversation.id"] = session
    if tags:
        attributes["agentkit.run.tags"] = [*tags]
    return attributes


def usage_attributes(usage: Usage) -> Attributes:
    """Return tokens and money."""
    attributes: Attributes = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    if usage.cached_tokens:
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    if usage.reasoning_tokens:
        attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
    if usage.money is not None:
        attributes["agentkit.usage.money"] = usage.money
    return attributes


def reply_attributes(reply: Reply) -> Attributes:
    """Return the attributes of a model call from its reply."""
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.finish_reasons": [finish_reason_in_spans(reply)],
        **usage_attributes(reply.usage),
    }
    if reply.model:
        attributes["gen_ai.response.model"] = reply.model
    return attributes


def finish_reason_in_spans(reply: Reply) -> str:
    """Return the finish reason of a reply by its well-known value."""
    reason = str(reply.finish_reason)
    # Endpoints and custom models end replies with calls as `stop` too.
    if reason == "stop" and reply.message.tool_calls:
        return "tool_call"
    return _FINISH_REASONS.get(reason, reason)


def layer_attributes(layers: SentLayers, usage: Usage) -> Attributes:
    """Return the tokens of the layers of a prompt, and the share of the prompt that came from the provider's cache."""
    attributes: Attributes = {f"agentkit.layer.{name}.tokens": count for name, count in layers.tokens.items()}
    attributes["agentkit.prompt.tokens"] = sum(layers.tokens.values())
    if layers.trimmed:
        attributes["agentkit.prompt.trimmed"] = [*layers.trimmed]
    if usage.input_tokens:
        attributes["agentkit.prompt.cached_share"] = round(usage.cached_tokens / usage.input_tokens, 4)
    return attributes


def tool_attributes(result: ToolResult) -> Attributes:
    """Return the attributes of a tool call from its result."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": result.name,
        "gen_ai.tool.call.id": result.call_id,
        "gen_ai.tool.type": "function",
        "agentkit.tool.status": result.status,
    }
    if not result.ok:
        attributes["error.type"] = _error_class(result) or result.status
    return attributes


def _error_class(result: ToolResult) -> str:
    error = result.error
    if error is None:
        return ""
    if isinstance(error, RecordedError):
        return error.exception_class
    return type(error).__name__


def recall_attributes(result: RecallResult) -> Attributes:
    """Return the number of recalled items, and of problems."""
    attributes: Attributes = {
        "gen_ai.operation.name": "search_memory",
        "gen_ai.memory.record.count": len(result.documents) + len(result.knowledge) + len(result.recalled),
    }
    if result.degraded:
        attributes["agentkit.memory.degraded"] = len(result.degraded)
    return attributes
