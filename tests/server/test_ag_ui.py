"""Chat front ends that speak AG-UI: what is streamed is read with the types of the protocol's own package."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ag_ui.core import AssistantMessage as Answer
from ag_ui.core import Context as About
from ag_ui.core import Event, RunAgentInput, TextPart, Tool, ToolMessage, UserMessage
from pydantic import BaseModel, TypeAdapter

from agentkit import Agent, Layers, Message, Reply, ScriptedModel, ToolCall, Usage, tool
from agentkit.models.offline.scripted_model import CutOff
from agentkit_prompts import AdditionalInfoPrompt, Template
from tests.server.serving_agents import Client, served
from tests.server.waiting import until

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
ASK = Tool(name="ask", description="Ask the person.", parameters={"type": "object", "properties": {"what": {}}})


@tool
def stock(book: str) -> str:
    """Tell how many are in stock."""
    return f"7 of {book}"


def calls(*made: ToolCall, text: str = "") -> Reply:
    return Reply(Message("assistant", text, tool_calls=made), usage=Usage(10, 5, 2))


def asked(text: str, **more: Any) -> RunAgentInput:
    given = [UserMessage(id="u1", role="user", content=text)]
    return RunAgentInput(thread_id="t", run_id="r", **{"messages": given, **more})


def sent(client: Client, asked: RunAgentInput, agent: str = "shop") -> Any:
    return client.http.post(f"/agents/{agent}/ag-ui", json=asked.model_dump(mode="json", by_alias=True))


def events(client: Client, asked: RunAgentInput) -> list[Any]:
    """Return what is streamed, each read by the type of its event."""
    answer = sent(client, asked)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream"), answer.text
    found = []
    for block in answer.text.removesuffix("\n\n").split("\n\n"):
        data = json.loads(block.removeprefix("data: "))
        event = EVENT.validate_python(data)
        assert not event.model_extra, data  # nothing that the protocol does not know
        assert event.model_dump(mode="json", by_alias=True) == data
        found.append(event)
    return found


def kinds(found: list[Any]) -> list[str]:
    return [event.type.value for event in found]


def test_a_run_is_streamed_with_its_tools_and_goes_on_with_what_the_client_sends_back() -> None:
    model = ScriptedModel(
        [calls(ToolCall("c1", "stock", '{"book": "Emma"}'), text="Let me see."), Reply(Message("assistant", "Seven."))]
    )
    with served(Agent(model, "You sell books.", tools=[stock], name="shop")) as client:
        found = events(client, asked("How many?", context=[About(description="Page", value="Emma")]))
        assert kinds(found) == [
            "RUN_STARTED",
            "STEP_STARTED",
            *("TEXT_MESSAGE_START", *["TEXT_MESSAGE_CONTENT"] * 3, "TEXT_MESSAGE_END"),
            *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
            "STEP_FINISHED",
            "STEP_STARTED",
            *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
            "STEP_FINISHED",
            "RUN_FINISHED",
        ]
        begun, text, call, result, ended = found[0], found[2], found[7], found[10], found[-1]
        assert (begun.thread_id, begun.run_id, ended.run_id, ended.outcome.type) == ("t", "r", "r", "success")
        assert call.parent_message_id == text.message_id and result.tool_call_id == call.tool_call_id
        assert (result.content, call.tool_call_name) == ("7 of Emma", "stock")
        assert (ended.usage[0].input_tokens, ended.usage[0].cached_input_tokens) == (10, 2)
        roles = [(one.role, one.text) for one in model.requests[0].messages]
        assert roles == [("system", "You sell books."), ("system", "Page:\nEmma"), ("user", "How many?")]
        run = until(lambda: client.get("/runs").json()["runs"])[0]
        assert (run["status"], run["agent"]) == ("finished", "shop")


def test_a_tool_of_the_front_end_ends_the_run_and_its_result_goes_on() -> None:
    model = ScriptedModel([calls(ToolCall("c1", "ask", '{"what": "size"}')), "Done."])
    with served(Agent(model, "You sell books.", tools=[stock], name="shop")) as client:
        found = events(client, asked("Buy.", tools=[ASK]))
        call = found[kinds(found).index("TOOL_CALL_START")]
        assert found[-1].outcome.pending_tool_call_ids == [call.tool_call_id]
        arguments = {"name": "ask", "arguments": '{"what": "size"}'}
        made: Any = {"id": call.tool_call_id, "type": "function", "function": arguments}
        more: Any = [
            UserMessage(id="u1", role="user", content=[TextPart(text="Buy.")]),
            Answer(id=call.parent_message_id, role="assistant", tool_calls=[made]),
            ToolMessage(id="m3", role="tool", tool_call_id=call.tool_call_id, content="large"),
        ]
        after = events(client, asked("", messages=more, tools=[ASK]))
        assert "".join([one.delta for one in after if one.type == "TEXT_MESSAGE_CONTENT"]) == "Done."
        assert [one.role for one in model.requests[-1].messages] == ["system", "user", "assistant", "tool"]


class Price(BaseModel):
    francs: int


NEEDS: Any = {"type": "object", "properties": {"currency": {"type": "string"}}, "required": ["currency"]}


def test_kwargs_typed_answers_and_what_cannot_be_are_told_before_anything_is_streamed() -> None:
    info = AdditionalInfoPrompt(Template("In {{ currency }}.", params_schema=NEEDS))
    model = ScriptedModel(['{"francs": 30}'])
    with served(Agent(model, Layers("Sell.", before_input=info), output=Price, name="shop")) as client:
        missing = sent(client, asked("Price?"))
        assert missing.status_code == 422 and set(missing.json()["error"]["additional_kwargs"]) == {"currency"}
        props = {"additional_kwargs": {"currency": "CHF"}}
        for more, what in (
            ({"forwarded_props": {"kwargs": 1}}, "kwargs: unknown field"),
            ({"forwarded_props": 3}, "expected an object"),
            ({"state": {"x": 1}}, "state: agents keep no state"),
            ({"resume": [{"interrupt_id": "i", "status": "resolved"}]}, "resume: no run waits here"),
            ({"messages": []}, "no message to answer"),
            ({"tools": [Tool(name="a b", description="")]}, "tools[0].name"),
        ):
            refused = sent(client, asked("x", **{"forwarded_props": props, **more}))
            assert 400 <= refused.status_code < 500 and what in refused.text, refused.text
        assert sent(client, asked("x"), agent="other").status_code == 404
        assert client.post("/agents/shop/ag-ui", {"threadId": "t"}).status_code == 422
        found = events(client, asked("Price?", forwarded_props=props))
        assert found[-1].result == {"francs": 30}
        assert [one.delta for one in found if one.type == "TEXT_MESSAGE_CONTENT"] == ['{"francs": 30}']


@pytest.mark.parametrize("reply", [CutOff("Half of"), RuntimeError("password=hunter2")])
def test_a_run_that_fails_ends_with_an_error_that_tells_nothing_inner(reply: Any) -> None:
    model = ScriptedModel([calls(ToolCall("c1", "stock", '{"book": "Emma"}')), reply])
    with served(Agent(model, tools=[stock], name="shop")) as client:
        found = events(client, asked("How many?"))
        assert kinds(found)[-1] == "RUN_ERROR" and "hunter2" not in found[-1].message and found[-1].code
