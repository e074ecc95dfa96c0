"""Traces over OTLP: the code of the page, sent to a collector on loopback."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="a package of the extra `dev`")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agentkit import Agent, Message, Reply, ScriptedModel, ToolCall, Usage, tool
from agentkit.memory import Memory
from tests.loopback import Received, answering

PAGE = Path(__file__).parents[2] / "docs/how-to/send-traces.md"
REQUIRED = {
    "chat": ("gen_ai.provider.name",),
    "invoke_agent": ("gen_ai.agent.name",),
    "execute_tool": ("gen_ai.tool.name",),
}
"""Attributes that the GenAI conventions require for each operation, besides `gen_ai.operation.name`."""


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Received]]]:
    requests: list[Received] = []

    def collect(request: Received) -> tuple[int, dict[str, str], bytes]:
        requests.append(request)
        return 200, {"content-type": "application/x-protobuf"}, b""

    with answering(collect) as address:
        yield address, requests


@tool
def look(name: str) -> str:
    """Look."""
    return f"{name} is here"


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)


def test_a_collector_receives_the_spans_of_a_run(
    collector: tuple[str, list[Received]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, requests = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{address}/api/public/otel")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20cHVibGljOnNlY3JldA==")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    block = re.search(r"```py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[1].replace("\nobserve(", "\nobservation = observe("), names)
    calls = Message("assistant", tool_calls=(ToolCall("c1", "look", '{"name": "Ada"}'),))
    replies = [Reply(calls, Usage(100, 5, 40), "tool_calls", "m-1"), Reply(Message("assistant", "Yes."), Usage(120, 7))]
    with names["observation"], Memory(tmp_path / "home") as memory:
        memory.documents.add("Ada lives in Berlin.", source="ada.md")
        agent = Agent(ScriptedModel(replies, name="m"), "You look.", tools=[look], memory=memory, name="desk")
        session = memory.within(memory.scope.narrow(user="ada")).session("monday")
        agent.run_sync("Where is Ada?", session=session, tags=["vip", "release-7"])
    names["provider"].shutdown()

    (request,) = requests
    assert request.path == "/api/public/otel/v1/traces"
    assert request.headers["authorization"] == "Basic cHVibGljOnNlY3JldA=="
    body = gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    spans = {
        span.name: ({item.key: _value(item.value) for item in span.attributes}, span)
        for scope in resource.scope_spans
        for span in scope.spans
    }
    assert sorted(spans) == ["chat m", "execute_tool look", "invoke_agent desk", "search_memory"]
    run, root = spans["invoke_agent desk"]
    assert {span.trace_id for _, span in spans.values()} == {root.trace_id} and not root.parent_span_id
    assert {span.parent_span_id for _, span in spans.values() if span is not root} == {root.span_id}
    for attributes, _ in spans.values():
        operation = attributes["gen_ai.operation.name"]
        assert all(attributes[name] for name in REQUIRED.get(operation, ())), attributes
    # The table of the page: the attributes that the products read.
    assert (run["session.id"], run["gen_ai.conversation.id"], run["user.id"]) == ("monday", "monday", "ada")
    assert run["langfuse.trace.tags"] == run["agentkit.run.tags"] == ["vip", "release-7"]
    assert (run["gen_ai.usage.input_tokens"], run["gen_ai.usage.output_tokens"]) == (220, 12)
    chat, call = spans["chat m"][0], spans["execute_tool look"][0]
    assert chat["gen_ai.request.model"] == "m" and "Where is Ada?" in chat["gen_ai.input.messages"]
    assert (call["gen_ai.tool.call.arguments"], call["gen_ai.tool.call.result"]) == ('{"name": "Ada"}', "Ada is here")
