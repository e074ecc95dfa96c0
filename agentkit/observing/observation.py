"""`observe`: spans and metrics of OpenTelemetry for all runs of this process; needs the extra `otel`.

Names are from the GenAI semantic conventions 0.1.0 (https://github.com/open-telemetry/semantic-conventions-genai);
names that the conventions do not define start with `agentkit.`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from agentkit.errors import AgentDefinitionError, Paused
from agentkit.models.model import NO_USAGE, Model, Reply
from agentkit.observing.model_attributes import model_attributes, settings_attributes
from agentkit.observing.redaction import Redact, redacted
from agentkit.run.engine.observed import ObservedModelCall, OnToolEnd, current_observer, set_observer
from agentkit.run.engine.run_result import RunResult
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.sent_layers import SentLayers
from agentkit.run.journal.trace import (
    encodable,
    finish_reason_in_spans,
    layer_attributes,
    recall_attributes,
    reply_attributes,
    run_attributes,
    tool_attributes,
    usage_attributes,
)
from agentkit.run.parts.recaller import RecallResult
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Text
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.errors import check_types
from agentkit_prompts.extras import install
from agentkit_prompts.hints import with_option_hints
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Boundaries of the buckets of times in seconds, from the conventions."""
_FIRST_CHUNK, _NEXT_CHUNK = "time_to_first_chunk", "time_per_output_chunk"


@with_option_hints
def observe(
    *,
    content: bool = False,
    redact: Redact | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Observation:
    """Create spans and metrics of each run, model call, tool call and recall in this process.

    Other spans of a tool, such as the spans of an HTTP client, are inside of the span of its call.

    Args:
        content: True if spans contain messages, arguments, results, queries and the texts of errors.
        redact: Returns the text to record for each of these texts. If it returns None or fails, the text is omitted.
        tracer_provider: Receives the spans; the provider of the process by default.
        meter_provider: Receives the metrics; the provider of the process by default.

    Returns:
        The observation: `with observe():`, or `observation.end()`.

    Raises:
        AgentDefinitionError: OpenTelemetry is not installed, this process is observed already, or `redact` is set
            without `content`.
    """
    check_types(AgentDefinitionError, "observe", content=(content, bool, "True or False"))
    for provider, method in ((tracer_provider, "get_tracer"), (meter_provider, "get_meter")):
        if provider is not None and not hasattr(provider, method):
            raise AgentDefinitionError(
                f"observe: expected a provider with {method}(), got {provider!r:.60}",
                name=method,
                value=type(provider).__name__,
            )
    if redact is not None and not callable(redact):
        raise AgentDefinitionError(
            f"observe: redact={redact!r:.60}: expected a function of a text", name="redact", value=type(redact).__name__
        )
    if redact is not None and not content:
        raise AgentDefinitionError(
            "observe: redact= has no effect: without content=True spans contain no texts", name="redact"
        )
    if current_observer() is not None:
        raise AgentDefinitionError(
            "observe: the runs of this process are observed already: end that observation first", name="observe"
        )
    observation = Observation(content, redact, tracer_provider, meter_provider)
    set_observer(observation)
    return observation


class Observation:
    """Observation of the runs of this process; see `observe`."""

    def __init__(
        self,
        content: bool,
        redact: Redact | None,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            raise AgentDefinitionError(
                f"observe needs OpenTelemetry: {install('otel')}", name="opentelemetry"
            ) from error
        from agentkit import __version__

        self._trace = trace
        self._content = content
        self.redact = redact
        """Returns the text to record for each text; None to record texts unchanged."""
        self._tracer = trace.get_tracer("agentkit", __version__, tracer_provider)
        meter = metrics.get_meter("agentkit", __version__, meter_provider)
        self._durations = {
            operation: meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=_SECONDS)
            for operation, name, description in (
                ("chat", "gen_ai.client.inference.duration", "Duration of model calls."),
                (_FIRST_CHUNK, f"gen_ai.client.inference.{_FIRST_CHUNK}", "Time to the first chunk of a reply."),
                (_NEXT_CHUNK, f"gen_ai.client.inference.{_NEXT_CHUNK}", "Time between two chunks of a reply."),
                ("invoke_agent", "gen_ai.invoke_agent.duration", "Duration of runs."),
                ("execute_tool", "gen_ai.execute_tool.duration", "Duration of tool calls."),
            )
        }
        self._tokens = {
            name: meter.create_counter(f"gen_ai.client.inference.usage.{name}", "{token}", description)
            for name, description in (
                ("input_tokens", "Tokens of prompts, including cached tokens."),
                ("cache_read.input_tokens", "Tokens of prompts that came from a provider's cache."),
                ("output_tokens", "Tokens of replies."),
                ("reasoning.output_tokens", "Tokens of replies that models used for their thinking."),
            )
        }

    def end(self) -> None:
        """Stop the observation of new runs. Running runs are observed until their end."""
        if current_observer() is self:
            set_observer(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @contextmanager
    def run(self, journal: Journal, model: Model) -> Iterator[Callable[[RunResult[Any]], None]]:
        names = model_attributes(model)
        attributes = {**run_attributes(journal.agent, journal.run_id, journal.session, journal.tags), **names}
        # Langfuse and Phoenix group traces by these general names, and not by `gen_ai.conversation.id`.
        if journal.session:
            attributes["session.id"] = journal.session
        if journal.scope is not None and journal.scope[1]:
            attributes["user.id"] = journal.scope[1]
        if journal.tags:
            attributes["langfuse.trace.tags"] = [*journal.tags]
        with self._operation(f"invoke_agent {journal.agent}", attributes) as (span, metric_attributes):
            metric_attributes.update(names)
            metric_attributes["gen_ai.agent.name"] = journal.agent

            def on_end(result: RunResult[Any]) -> None:
                span.set_attribute("agentkit.run.finish_reason", clean(str(result.finish_reason)))

            try:
                yield on_end
            finally:
                span.set_attributes(usage_attributes(journal.usage))

    @contextmanager
    def model_call(
        self, model: Model, composition: Composition, *, session: str | None, is_streamed: bool
    ) -> Iterator[ObservedModelCall]:
        names: dict[str, Any] = {"gen_ai.operation.name": "chat", **model_attributes(model)}
        attributes = {**names, **settings_attributes(model)}
        if is_streamed:
            attributes["gen_ai.request.stream"] = True
        if session is not None:
            attributes["gen_ai.conversation.id"] = session
        if composition.output_schema is not None:
            attributes["gen_ai.output.type"] = "json"
        name = names["gen_ai.request.model"]
        with self._operation(f"chat {name}", attributes, is_client=True) as (span, metric_attributes):
            metric_attributes.update(names)
            layers = SentLayers.of(composition)
            span.set_attributes(encodable(layer_attributes(layers, NO_USAGE)))
            self._add_content(span, "gen_ai.input.messages", lambda: self._messages(composition.messages))
            call = _ModelCall(self, span, metric_attributes, layers)
            try:
                yield call
            except BaseException:
                if not call.has_ended:
                    span.set_attribute("gen_ai.response.finish_reasons", ["error"])
                raise

    @contextmanager
    def recall(self, query: str) -> Iterator[Callable[[RecallResult], None]]:
        with self._operation("search_memory", {"gen_ai.operation.name": "search_memory"}) as (span, _):
            self._add_content(span, "gen_ai.memory.query.text", lambda: self._redacted(query))

            def on_end(result: RecallResult) -> None:
                span.set_attributes(encodable(recall_attributes(result)))
                kinds = (result.documents, result.knowledge, result.recalled)
                texts = [item.text for items in kinds for item in items]
                self._add_content(
                    span, "gen_ai.memory.records", lambda: [{"content": self._redacted(text)} for text in texts]
                )

            yield on_end

    def tool_started(self, call: ToolCall, tool: Tool | None) -> OnToolEnd:
        from opentelemetry import context

        began = time.perf_counter()
        metric_attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name}
        # Without a `with` block, because the calls of one step start and end in any order.
        attributes = encodable({**metric_attributes, "gen_ai.tool.call.id": call.id})
        span = self._tracer.start_span(clean(f"execute_tool {call.name}"), attributes=attributes)
        token = context.attach(self._trace.set_span_in_context(span))
        self._add_content(span, "gen_ai.tool.call.arguments", lambda: self._json(call.arguments))

        def on_end(result: ToolResult | None) -> None:
            if result is None:
                self._set_error(span, metric_attributes, "CancelledError", "")
            else:
                # Not for a cancelled call, which ends in another context: the token is invalid there.
                context.detach(token)
                attributes = encodable(tool_attributes(result))
                span.set_attributes(attributes)
                self._add_content(span, "gen_ai.tool.call.result", lambda: self._redacted(result.message.text))
                if not result.ok:
                    self._set_error(span, metric_attributes, attributes["error.type"], result.message.text)
            span.end()
            self.record("execute_tool", time.perf_counter() - began, metric_attributes)

        return on_end

    @contextmanager
    def _operation(
        self, name: str, attributes: Mapping[str, Any], *, is_client: bool = False
    ) -> Iterator[tuple[Span, dict[str, Any]]]:
        """Record a span and the duration of a `with` block; yield the span and the attributes of the metrics."""
        kinds = self._trace.SpanKind
        began, operation = time.perf_counter(), attributes["gen_ai.operation.name"]
        metric_attributes: dict[str, Any] = {"gen_ai.operation.name": operation}
        with self._tracer.start_as_current_span(
            clean(name),
            kind=kinds.CLIENT if is_client else kinds.INTERNAL,
            attributes=encodable(attributes),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span, metric_attributes
            # A paused run has not failed.
            except Paused as paused:
                span.set_attribute("agentkit.run.waiting_calls", len(paused.calls))
                raise
            except BaseException as error:
                self._set_error(span, metric_attributes, type(error).__name__, str(error))
                raise
            finally:
                self.record(operation, time.perf_counter() - began, metric_attributes)

    def record(self, name: str, seconds: float, metric_attributes: Mapping[str, Any]) -> None:
        """Record a time with the attributes of its metric; operations without a metric are ignored."""
        if name in self._durations:
            self._durations[name].record(seconds, encodable(metric_attributes))

    def _set_error(self, span: Span, metric_attributes: dict[str, Any], kind: str, text: str) -> None:
        metric_attributes["error.type"] = kind
        span.set_attribute("error.type", kind)
        description = None
        if self._content and text:
            description = clean(self._redacted(text))
        span.set_status(self._trace.StatusCode.ERROR, description)

    def reply(self, span: Span, metric_attributes: Mapping[str, Any], reply: Reply) -> None:
        """Record the content and the tokens of a reply."""
        reason = finish_reason_in_spans(reply)
        self._add_content(span, "gen_ai.output.messages", lambda: self._messages([reply.message], reason))
        usage, token_attributes = reply.usage, encodable({**metric_attributes, "gen_ai.token.modality": "unknown"})
        for name, count in (
            ("input_tokens", usage.input_tokens),
            ("cache_read.input_tokens", usage.cached_tokens),
            ("output_tokens", usage.output_tokens),
            ("reasoning.output_tokens", usage.reasoning_tokens),
        ):
            # A zero would create an empty series in the metrics.
            if count:
                self._tokens[name].add(count, token_attributes)

    def _add_content(self, span: Span, name: str, content: Callable[[], Any]) -> None:
        """Add an attribute with content to a span, if `content` is set."""
        if not self._content or not span.is_recording():
            return
        value = content()
        # Structured content becomes JSON text, because attributes are texts or numbers.
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False)
        span.set_attribute(name, clean(value))

    def _redacted(self, text: str) -> str:
        return redacted(self.redact, text)

    def _json(self, text: str) -> Any:
        """Return the data in a JSON text; the text if it is not JSON."""
        text = self._redacted(text)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text

    def _messages(self, messages: Iterable[Message], finish_reason: str | None = None) -> list[dict[str, Any]]:
        """Return messages in the form of the semantic conventions."""
        rows: list[dict[str, Any]] = []
        for message in messages:
            parts: list[dict[str, Any]] = []
            if message.role == "tool":
                parts.append(
                    {
                        "type": "tool_call_response",
                        "id": message.tool_call_id,
                        "response": self._redacted(message.text),
                    }
                )
            else:
                parts += [
                    {"type": "reasoning", "content": self._redacted(thought.text)}
                    for thought in message.thinking
                    if thought.text
                ]
                for part in message.parts:
                    if isinstance(part, Text):
                        parts.append({"type": "text", "content": self._redacted(part.text)})
                    else:
                        # Spans contain the kinds of media, not their data.
                        parts.append({"type": type(part).__name__.lower()})
                parts += [
                    {"type": "tool_call", "id": call.id, "name": call.name, "arguments": self._json(call.arguments)}
                    for call in message.tool_calls
                ]
            rows.append({"role": message.role, "parts": parts})
            if finish_reason is not None:
                rows[-1]["finish_reason"] = str(finish_reason)
        return rows


class _ModelCall:
    """One model call: the arrival of its chunks and its reply."""

    def __init__(
        self, observation: Observation, span: Span, metric_attributes: dict[str, Any], layers: SentLayers
    ) -> None:
        self._observation = observation
        self._span, self._metric_attributes, self._layers = span, metric_attributes, layers
        self._began = self._latest = time.perf_counter()
        self._has_chunk = False
        self.has_ended = False
        """True if the reply has arrived."""

    def chunk(self) -> None:
        now = time.perf_counter()
        name = _NEXT_CHUNK
        if not self._has_chunk:
            self._has_chunk, name = True, _FIRST_CHUNK
            self._span.set_attribute(f"gen_ai.response.{_FIRST_CHUNK}", now - self._began)
        self._observation.record(name, now - self._latest, self._metric_attributes)
        self._latest = now

    def ended(self, reply: Reply) -> None:
        self.has_ended = True
        attributes = {**reply_attributes(reply), **layer_attributes(self._layers, reply.usage)}
        self._span.set_attributes(encodable(attributes))
        if reply.model:
            self._metric_attributes["gen_ai.response.model"] = reply.model
        self._observation.reply(self._span, self._metric_attributes, reply)
