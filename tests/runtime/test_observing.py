"""Spans and metrics of runs, and traces as plain data: their contents, their nesting, and excluded contents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra `otel`")

from opentelemetry import trace as otel
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentkit import (
    Agent,
    Journal,
    LimitExceeded,
    Limits,
    Message,
    Paused,
    Reply,
    ScriptedModel,
    ToolCall,
    Usage,
    observe,
    tool,
)
from agentkit import model as model_named
from agentkit.errors import AgentDefinitionError, JournalError
from agentkit.memory import Memory
from agentkit.models import (
    AnthropicModel,
    FallbackModel,
    ModelUnavailable,
    OpenAIModel,
    OpenAIResponsesModel,
)
from agentkit.models.model_errors import NetworkRefused
from agentkit.prompts import Thinking
from agentkit.testing import controlled_time, no_real_models
from tests.raising import raises

SECRET = "4111-1111"


class Spans:
    """Records of a tracer and a meter."""

    def __init__(self) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracer = TracerProvider()
        self.tracer.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meter = MeterProvider([self._reader])
        self.providers: dict[str, Any] = {"tracer_provider": self.tracer, "meter_provider": self.meter}

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def tree(self, parent: int | None = None) -> list[Any]:
        """Return names, each with its inner names, in the order of their starts."""
        inside = [one for one in self.all if (one.parent and one.parent.span_id) == parent]
        inside.sort(key=lambda one: one.start_time or 0)
        return [(one.name, self.tree(one.context.span_id)) for one in inside]

    def one(self, name: str) -> dict[str, Any]:
        return dict(next(one for one in self.all if one.name == name).attributes or {})

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        """Return the points of each metric: their attributes, and sum or count."""
        data = self._reader.get_metrics_data()
        assert data is not None
        found: dict[str, list[tuple[dict[str, Any], float]]] = {}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.data.data_points:
                value = getattr(point, "value", None)
                value = getattr(point, "count", None) if value is None else value
                found.setdefault(metric.name, []).append((dict(point.attributes or {}), value or 0))
        return found

    def seconds(self, operation: str) -> list[Any]:
        """Return the measured durations of an operation: points with their `sum` and `max`."""
        data = self._reader.get_metrics_data()
        assert data is not None
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        return [
            point for one in metrics if one.name == f"gen_ai.{operation}.duration" for point in one.data.data_points
        ]

    def texts(self) -> str:
        return json.dumps([[one.name, dict(one.attributes or {}), one.status.description] for one in self.all])


@pytest.fixture
def spans() -> Iterator[Spans]:
    yield Spans()


def calling(*calls: tuple[str, str, str]) -> Reply:
    message = Message("assistant", tool_calls=tuple([ToolCall(*call) for call in calls]))
    return Reply(message, Usage(100, 5, 40), "tool_calls", "test-1")


def answering(text: str = "done") -> Reply:
    return Reply(Message("assistant", text), Usage(120, 7, 80), "stop", "test-1")


@tool
def look(name: str) -> str:
    """Look."""
    with otel.get_tracer("mine", tracer_provider=LOOKING[0].tracer).start_as_current_span("my own"):
        return f"{name} has {SECRET}"


LOOKING: list[Spans] = []


def shop(**options: Any) -> Agent[Any, Any]:
    clerk = Agent(ScriptedModel.repeat(lambda _: answering("yes")), "You answer.", name="clerk")
    script = [calling(("a", "look", '{"name": "Ada"}'), ("b", "ask", '{"input": "Ada?"}')), answering()]
    ask = clerk.as_tool(name="ask", description="Asks.")
    return Agent(ScriptedModel(script), "You look.", tools=[look, ask], name="shop", **options)


async def test_the_span_of_a_run_names_its_user(spans: Spans) -> None:
    with observe(**spans.providers):
        await Agent(ScriptedModel(["ok"]), "x", name="desk").run("Hi", tenant="acme", user="ada")
    assert spans.one("invoke_agent desk")["user.id"] == "ada"


async def test_a_run_its_model_calls_tools_and_recalls_are_spans_of_one_tree(spans: Spans, tmp_path: Path) -> None:
    LOOKING[:] = [spans]
    with Memory(tmp_path / "home", scope="acme") as memory, observe(**spans.providers):
        memory.documents.add("Ada lives in Berlin.", source="ada.md")
        session = memory.session("s-1")
        result = await shop(memory=memory).run(f"Where is Ada? {SECRET}", session=session)
    await shop().run("nobody observes this")

    assert spans.tree() == [
        (
            "invoke_agent shop",
            [
                ("search_memory", []),
                ("chat scripted", []),
                ("execute_tool look", [("my own", [])]),
                ("execute_tool ask", [("invoke_agent clerk", [("chat scripted", [])])]),
                ("chat scripted", []),
            ],
        ),
        ("my own", []),  # the span of the unobserved run
    ]
    run = spans.one("invoke_agent shop")
    assert run["gen_ai.operation.name"] == "invoke_agent" and run["gen_ai.conversation.id"] == session.id
    assert run["session.id"] == session.id and run["user.id"] == "local"
    assert run["agentkit.run.id"] == result.run_id
    assert run["gen_ai.usage.input_tokens"] == 340 == result.usage.input_tokens
    call = spans.one("chat scripted")
    assert call["gen_ai.request.model"] == "scripted" and call["gen_ai.response.model"] == "test-1"
    assert call["gen_ai.provider.name"] == "ScriptedModel"
    assert call["gen_ai.usage.cache_read.input_tokens"] == 40 and call["agentkit.prompt.cached_share"] == 0.4
    layers = {name: count for name, count in call.items() if name.startswith("agentkit.layer.")}
    assert sum(layers.values()) == call["agentkit.prompt.tokens"] and layers["agentkit.layer.tools.tokens"] > 0
    assert spans.one("search_memory")["gen_ai.memory.record.count"] == 1
    assert spans.one("execute_tool look")["agentkit.tool.status"] == "success"
    assert SECRET not in spans.texts() and "Berlin" not in spans.texts()

    points = spans.metrics()
    usage = "gen_ai.client.inference.usage"
    assert {name: sum(value for _, value in found) for name, found in points.items()} == {
        "gen_ai.client.inference.duration": 3,
        "gen_ai.invoke_agent.duration": 2,
        "gen_ai.execute_tool.duration": 2,
        f"{usage}.input_tokens": 340,
        f"{usage}.cache_read.input_tokens": 200,
        f"{usage}.output_tokens": 19,
    }
    assert points["gen_ai.client.inference.duration"][0][0].keys() == {
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.response.model",
    }


async def test_the_parts_of_a_run_take_no_longer_than_the_run(spans: Spans) -> None:
    LOOKING[:] = [spans]
    with observe(**spans.providers):
        await shop().run("Where is Ada?")
    calls, runs, tools = map(spans.seconds, ("client.inference", "invoke_agent", "execute_tool"))
    assert 0 <= sum(one.sum for one in calls) <= sum(one.sum for one in runs)  # one call after the other
    assert 0 <= max(one.max for one in tools) <= max(one.max for one in runs)


async def test_content_is_in_spans_only_with_an_option_and_is_redacted_everywhere(spans: Spans) -> None:
    LOOKING[:] = [spans]

    def redact(text: str) -> str:
        if "BROKEN" in text:
            raise RuntimeError("cannot")
        return text.replace(SECRET, "[card]")

    @tool
    def fail(text: str) -> str:
        """Fail."""
        raise ValueError(f"no {SECRET}")

    script = [
        calling(("a", "look", f'{{"name": "Ada {SECRET}"}}'), ("b", "fail", '{"text": "BROKEN"}')),
        answering(SECRET),
    ]
    agent = Agent(ScriptedModel(script), "You look.", tools=[look, fail], name="shop")
    with observe(content=True, redact=redact, **spans.providers):
        await agent.run(f"My card is {SECRET}")
    texts = spans.texts()
    assert SECRET not in texts and "[card]" in texts and "BROKEN" not in texts
    called = spans.one("execute_tool look")
    assert json.loads(called["gen_ai.tool.call.arguments"]) == {"name": "Ada [card]"}
    assert called["gen_ai.tool.call.result"] == "Ada [card] has [card]"
    assert spans.one("execute_tool fail")["error.type"]
    last = [one for one in spans.all if one.name == "chat scripted"][-1].attributes or {}
    sent = json.loads(str(last["gen_ai.input.messages"]))
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool"]
    assert sent[1]["parts"] == [{"type": "text", "content": "My card is [card]"}]
    assert sent[2]["parts"][0] == {"type": "tool_call", "id": "a", "name": "look", "arguments": {"name": "Ada [card]"}}
    assert sent[3]["parts"][0]["type"] == "tool_call_response"
    assert json.loads(str(last["gen_ai.output.messages"]))[0]["finish_reason"] == "stop"


async def test_errors_pauses_and_cancellations_end_spans(spans: Spans) -> None:
    @tool(approval="always")
    def pay(name: str) -> str:
        """Pay."""
        return "paid"

    @tool
    async def linger() -> str:
        """Linger."""
        await asyncio.sleep(60)
        return "late"

    with observe(**spans.providers):
        with pytest.raises(ModelUnavailable):
            await Agent(ScriptedModel([ModelUnavailable(f"gone {SECRET}", model="m")]), name="broken").run("hi")
        with pytest.raises(Paused):
            await Agent(ScriptedModel([calling(("a", "pay", '{"name": "A"}'))]), tools=[pay], name="asks").run("hi")
        with pytest.raises(LimitExceeded):
            slow = Agent(ScriptedModel([calling(("a", "linger", "{}"))]), tools=[linger], name="slow")
            with controlled_time():
                await slow.run("hi", limits=Limits(seconds=30))
    assert spans.tree() == [
        ("invoke_agent broken", [("chat scripted", [])]),
        ("invoke_agent asks", [("chat scripted", [])]),
        ("invoke_agent slow", [("chat scripted", []), ("execute_tool linger", [])]),
    ]
    assert spans.one("invoke_agent broken")["error.type"] == "ModelUnavailable"
    assert spans.one("invoke_agent slow")["error.type"] == "LimitExceeded"
    paused = spans.one("invoke_agent asks")
    assert paused["agentkit.run.waiting_calls"] == 1 and "error.type" not in paused
    assert SECRET not in spans.texts()
    failed = [attributes for attributes, _ in spans.metrics()["gen_ai.client.inference.duration"]]
    assert "ModelUnavailable" in [one.get("error.type") for one in failed]


def test_options_without_effect_are_refused_and_a_process_is_observed_once(spans: Spans) -> None:
    with raises(AgentDefinitionError, name="redact"):
        observe(redact=str.upper, **spans.providers)
    with observe(**spans.providers), raises(AgentDefinitionError, name="observe"):
        observe(**spans.providers)
    observe(**spans.providers).end()


async def test_a_trace_is_plain_data_of_the_journal_from_any_source(tmp_path: Path, spans: Spans) -> None:
    LOOKING[:] = [spans]
    file = tmp_path / "run.jsonl"
    result = await shop().run("Where is Ada?", journal=file)
    trace = result.trace
    assert json.loads(json.dumps(trace)) == trace == Journal.read(file).trace
    chat, *calls, last = trace["spans"]
    ask, called = sorted(calls, key=lambda span: span["name"])  # their order is not defined
    names = [span["name"] for span in (chat, ask, called, last)]
    assert names == ["chat test-1", "execute_tool ask", "execute_tool look", "chat test-1"]
    assert [span["name"] for span in ask["spans"]] == ["invoke_agent clerk"]
    assert chat["attributes"]["agentkit.prompt.cached_share"] == 0.4
    assert chat["attributes"]["agentkit.layer.tools.tokens"] > 0
    times = [trace["start"], chat["start"], chat["end"], last["start"], last["end"], trace["end"]]
    assert None not in times and times == sorted(times, key=lambda one: one or 0)
    assert called["start"] == ask["start"] == chat["end"]


def test_a_journal_without_times_is_read_and_invalid_times_are_refused(spans: Spans) -> None:
    LOOKING[:] = [spans]
    text = shop().run_sync("hi").journal.dumps()
    lines = [json.loads(line) for line in text.splitlines()]
    old = "".join(json.dumps({k: v for k, v in line.items() if k not in ("at", "layers")}) + "\n" for line in lines)
    trace = Journal.loads(old).trace
    assert trace["start"] is None and trace["spans"][0]["end"] is None
    for wrong in ({"at": "now"}, {"layers": []}, {"layers": {"tokens": {"a": "b"}, "trimmed": [], "money": None}}):
        with raises(JournalError, line=2):
            Journal.loads("".join(json.dumps(one) + "\n" for one in [lines[0], {**lines[1], **wrong}]))


HALF = "\ud83d"
"""Half an emoji, as clients cut texts."""


def spans_of(model: Any) -> dict[str, dict[str, Any]]:
    """Return the attributes of the spans of a run by the name of the operation; no request leaves this process."""
    spans = Spans()
    with observe(**spans.providers), no_real_models(), suppress(NetworkRefused):
        Agent(model, name="shop").run_sync("Hi")
    assert all("gen_ai.provider.name" in points[0][0] for points in spans.metrics().values())
    attributes = [dict(span.attributes or {}) for span in spans.all]
    return {str(each["gen_ai.operation.name"]): each for each in attributes}


class Custom(ScriptedModel):
    """A model whose attributes have names of attributes of other models."""

    models = ("gpt", "claude")
    host = "[::1"


@pytest.mark.parametrize(
    ("model", "provider", "name", "server"),
    [
        (ScriptedModel(["Hello."]), "ScriptedModel", "scripted", None),
        (Custom(["Hello."]), "Custom", "scripted", None),
        (OpenAIModel("m", base_url="http://127.0.0.1:1/v1"), "openai", "m", ("127.0.0.1", 1)),
        (OpenAIModel("m", base_url="http://[::1]:1/v1"), "openai", "m", ("::1", 1)),
        (OpenAIModel("m", base_url="https://api.groq.com/openai/v1"), "groq", "m", ("api.groq.com", 443)),
        (OpenAIModel("m", base_url="http://x.openai.azure.com"), "azure.ai.openai", "m", ("x.openai.azure.com", 80)),
        (OpenAIResponsesModel("m"), "openai", "m", ("api.openai.com", 443)),
        (AnthropicModel("m"), "anthropic", "m", ("api.anthropic.com", 443)),
        (model_named("deepseek:m"), "deepseek", "m", ("api.deepseek.com", 443)),
        (model_named("ollama:m", base_url="http://127.0.0.1:1"), "ollama", "m", ("127.0.0.1", 1)),
        (FallbackModel("anthropic:m", "openai:n"), "anthropic", "m", ("api.anthropic.com", 443)),
    ],
)  # fmt: skip
def test_spans_name_the_provider_the_model_and_the_server(
    model: Any, provider: str, name: str, server: tuple[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    spans = spans_of(model)
    for operation in ("invoke_agent", "chat"):
        attributes = spans[operation]
        assert (attributes["gen_ai.provider.name"], attributes["gen_ai.request.model"]) == (provider, name)
        found = (attributes["server.address"], attributes["server.port"]) if "server.address" in attributes else None
        assert found == server
    if server is not None:
        assert spans["chat"]["gen_ai.response.finish_reasons"] == ("error",)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (answering(), "stop"),
        (Reply(Message("assistant", "a"), finish_reason="length"), "length"),
        (Reply(Message("assistant", "a"), finish_reason="refusal"), "content_filter"),
        (Reply(Message("assistant", "a"), finish_reason="something"), "something"),
        (calling(("a", "look", "{}")), "tool_call"),
        (replace(calling(("a", "look", "{}")), finish_reason="stop"), "tool_call"),
        (replace(calling(("a", "look", "{}")), finish_reason="length"), "length"),
    ],
)
def test_finish_reasons_have_the_well_known_values(spans: Spans, reply: Reply, reason: str) -> None:
    with observe(content=True, **spans.providers), suppress(Exception):
        Agent(ScriptedModel([reply, "done"]), tools=[look], name="shop").run_sync("Hi")
    first = spans.all[0].attributes or {}
    assert first["gen_ai.response.finish_reasons"] == (reason,)
    assert json.loads(str(first["gen_ai.output.messages"]))[0]["finish_reason"] == reason


async def test_streamed_calls_have_the_time_to_the_first_chunk_and_replies_their_reasoning_tokens(spans: Spans) -> None:
    script = [Reply(Message("assistant", "Some words in several pieces."), Usage(5, 4, reasoning_tokens=3))] * 2
    agent = Agent(ScriptedModel(script), name="shop")
    with observe(**spans.providers):
        async for _ in agent.stream("Hi"):
            pass
        streamed = spans.one("chat scripted")
        result = await agent.run("Hi")
    assert streamed["gen_ai.response.time_to_first_chunk"] >= 0 and streamed["gen_ai.request.stream"] is True
    whole = [span.attributes or {} for span in spans.all if span.name == "chat scripted"][-1]
    assert "gen_ai.response.time_to_first_chunk" not in whole
    for span in (streamed, whole, spans.one("invoke_agent shop"), result.trace["attributes"]):
        assert span["gen_ai.usage.reasoning.output_tokens"] == 3
    metrics = spans.metrics()
    assert [count for _, count in metrics["gen_ai.client.inference.time_to_first_chunk"]] == [1]
    assert metrics["gen_ai.client.inference.time_per_output_chunk"][0][1] >= 1
    assert sum(count for _, count in metrics["gen_ai.client.inference.usage.reasoning.output_tokens"]) == 6


def test_half_an_emoji_is_replaced_in_every_exported_text(spans: Spans, tmp_path: Path) -> None:
    @tool
    def fail(text: str) -> str:
        """Fail."""
        raise ValueError(f"no {text} {HALF}")

    thought = Thinking(f"hm {HALF}")
    calls = Message(
        "assistant", f"Let me {HALF}", thinking=(thought,),
        tool_calls=(ToolCall(f"c{HALF}", "fail", '{"text": "\\ud83d"}'), ToolCall("d", f"look{HALF}", f"x{HALF}")),
    )  # fmt: skip
    script: list[Any] = [
        Reply(calls, finish_reason=f"odd{HALF}", model=f"m{HALF}"),
        ModelUnavailable(f"gone {HALF}", model="m"),
    ]
    with (
        Memory(tmp_path / "home", scope="acme") as memory,
        observe(content=True, redact=lambda text: text + HALF, **spans.providers),
    ):
        memory.documents.add("Ada lives in Berlin.", source="ada.md")
        agent = Agent(ScriptedModel(script), f"S {HALF}", tools=[fail], name="shop", memory=memory)
        with pytest.raises(ModelUnavailable):
            agent.run_sync(f"Where is Ada? {HALF}")
    assert len(spans.all) == 6
    texts = [[span.name, span.status.description, *(span.attributes or {}).items()] for span in spans.all]
    exported = json.dumps([texts, spans.metrics()], ensure_ascii=False, default=str)
    exported.encode()
    assert exported.count("\ufffd") > 20
