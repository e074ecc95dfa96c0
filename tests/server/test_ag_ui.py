"""Chat front ends that speak AG-UI: events are read with the types of the package of the protocol."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import AssistantMessage as Answer
from ag_ui.core import Context as About
from ag_ui.core import Event, RunAgentInput, TextPart, Tool, ToolMessage, UserMessage
from pydantic import BaseModel, TypeAdapter

from agentkit import Agent, Approved, Composition, Layers, Message, Reply, ScriptedModel, ToolCall, Usage, tool
from agentkit.prompts import AdditionalInfoPrompt, Template
from agentkit.server import Access, RunStore, ServerOptions, add_token
from agentkit.testing import CutOff, Delayed
from agentkit.tools import ToolContext
from tests.server.serving_agents import Client, served
from tests.waiting import LONG, until

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
ASK = Tool(name="ask", description="Ask the person.", parameters={"type": "object", "properties": {"what": {}}})


@tool
def stock(book: str) -> str:
    """Return the number in stock."""
    return f"7 of {book}"


def calls(*made: ToolCall, text: str = "") -> Reply:
    return Reply(Message("assistant", text, tool_calls=made), usage=Usage(10, 5, 2))


def run_input(text: str, **more: Any) -> RunAgentInput:
    given = [UserMessage(id="u1", role="user", content=text)]
    return RunAgentInput(thread_id="t", run_id="r", **{"messages": given, **more})


def sent(client: Client, request: RunAgentInput, agent: str = "shop") -> Any:
    return client.http.post(f"/agents/{agent}/ag-ui", json=request.model_dump(mode="json", by_alias=True))


def events(client: Client, request: RunAgentInput) -> list[Any]:
    """Return the events of a stream, each read by its type."""
    answer = sent(client, request)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream"), answer.text
    found = []
    for block in answer.text.removesuffix("\n\n").split("\n\n"):
        data = json.loads(block.removeprefix("data: "))
        event = EVENT.validate_python(data)
        assert not event.model_extra, data  # no field that the protocol does not have
        assert event.model_dump(mode="json", by_alias=True) == data
        found.append(event)
    return found


def kinds(found: list[Any]) -> list[str]:
    return [event.type.value for event in found]


def test_a_run_is_streamed_with_its_tools_and_continues_with_the_messages_of_the_client() -> None:
    model = ScriptedModel(
        [calls(ToolCall("c1", "stock", '{"book": "Emma"}'), text="Let me see."), Reply(Message("assistant", "Seven."))]
    )
    with served(Agent(model, "You sell books.", tools=[stock], name="shop")) as client:
        found = events(client, run_input("How many?", context=[About(description="Page", value="Emma")]))
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


def test_a_tool_of_the_front_end_ends_the_run_which_continues_with_the_result() -> None:
    model = ScriptedModel([calls(ToolCall("c1", "ask", '{"what": "size"}')), "Done."])
    with served(Agent(model, "You sell books.", tools=[stock], name="shop")) as client:
        found = events(client, run_input("Buy.", tools=[ASK]))
        call = found[kinds(found).index("TOOL_CALL_START")]
        assert found[-1].outcome.pending_tool_call_ids == [call.tool_call_id]
        arguments = {"name": "ask", "arguments": '{"what": "size"}'}
        made: Any = {"id": call.tool_call_id, "type": "function", "function": arguments}
        more: Any = [
            UserMessage(id="u1", role="user", content=[TextPart(text="Buy.")]),
            Answer(id=call.parent_message_id, role="assistant", tool_calls=[made]),
            ToolMessage(id="m3", role="tool", tool_call_id=call.tool_call_id, content="large"),
        ]
        after = events(client, run_input("", messages=more, tools=[ASK]))
        assert "".join([one.delta for one in after if one.type == "TEXT_MESSAGE_CONTENT"]) == "Done."
        assert [one.role for one in model.requests[-1].messages] == ["system", "user", "assistant", "tool"]


OPEN: Any = {"id": "o1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
PAID: list[int] = []


@tool(approval="always")
def pay(francs: int) -> str:
    """Pay."""
    PAID.append(francs)
    return f"paid {francs}"


def answering(interrupts: list[Any], *payloads: Any) -> RunAgentInput:
    """Return the request that answers interrupts: a payload for each, or `None` for an undecided interrupt."""
    resume: Any = [
        {"interrupt_id": one.id, "status": "cancelled" if payload is None else "resolved", "payload": payload}
        for one, payload in zip(interrupts, payloads, strict=True)
    ]
    return RunAgentInput(thread_id="t", run_id="r2", messages=[], resume=resume)


def texts(found: list[Any]) -> str:
    return "".join([one.delta for one in found if one.type == "TEXT_MESSAGE_CONTENT"])


def test_a_form_of_a_tool_interrupts_the_run_and_is_completed_by_the_client() -> None:
    @tool
    async def order(context: ToolContext) -> str:
        """Order."""
        return str(await context.ask("Which size?", {"type": "object", "properties": {"size": {"type": "string"}}}))

    model = ScriptedModel([calls(ToolCall("c1", "order", "{}")), "Sold."])
    with served(Agent(model, tools=[order], name="shop")) as client:
        first = events(client, run_input("A shirt."))
        (waiting,) = first[-1].outcome.interrupts
        assert "Which size?" in waiting.message
        answer = {"approved": True, "editedArgs": {"answer": {"size": "L"}}}
        last = events(client, answering([waiting], answer))
        assert (texts(last), last[-1].outcome.type) == ("Sold.", "success")
        assert [one.content for one in last if one.type == "TOOL_CALL_RESULT"] == ["{'size': 'L'}"]


def test_a_call_that_needs_a_person_interrupts_the_run_which_continues_with_the_decision() -> None:
    PAID.clear()
    both = calls(
        ToolCall("c0", "stock", '{"book": "Emma"}'),
        ToolCall("c1", "pay", '{"francs": 3}'),
        ToolCall("c2", "pay", '{"francs": 4}'),
        text="I pay.",
    )
    again = calls(ToolCall("c3", "pay", '{"francs": 5}'))
    model = ScriptedModel([both, again, Reply(Message("assistant", "Paid."), usage=Usage(7, 1))])
    with served(Agent(model, tools=[stock, pay], name="shop")) as client:
        first = events(client, run_input("Pay."))
        assert first[-1].outcome.type == "interrupt" and PAID == []
        waiting = first[-1].outcome.interrupts
        begun = {one.tool_call_id: one.tool_call_name for one in first if one.type == "TOOL_CALL_START"}
        assert [begun[one.tool_call_id] for one in waiting] == ["pay", "pay"] and len(begun) == 2
        assert [one.reason for one in waiting] == ["tool_call"] * 2
        assert waiting[0].message == "Run pay with these arguments?\nfrancs: 3"
        assert (first[-1].usage[0].input_tokens, kinds(first)[-2]) == (10, "STEP_FINISHED")

        edited = answering(waiting, {"approved": True, "editedArgs": {"francs": 30}}, None)
        second = events(client, edited)
        results = [one for one in second if one.type == "TOOL_CALL_RESULT"]
        ids = {one.tool_call_id: one.content for one in results}
        assert PAID == [30] and ids[waiting[0].tool_call_id] == "paid 30"
        assert "undecided" in ids[waiting[1].tool_call_id] and "7 of Emma" in ids.values()
        fresh = [one.tool_call_id for one in second if one.type == "TOOL_CALL_START"]
        assert len(fresh) == 2 and not {one.tool_call_id for one in waiting} & {*fresh}  # no call starts twice
        assert second[-1].outcome.type == "interrupt" and second[-1].usage[0].input_tokens == 10

        assert sent(client, edited).status_code == 422  # it now waits for another call
        last = events(client, answering(second[-1].outcome.interrupts, {"approved": False, "reason": "too much"}))
        assert (texts(last), last[-1].outcome.type, last[-1].usage[0].input_tokens) == ("Paid.", "success", 7)
        assert sent(client, edited).status_code == 409 and PAID == [30]  # an answered call is not executed again
        assert "too much" in model.requests[-1].messages[-1].text
        run = client.get("/runs").json()["runs"][0]
        assert (run["status"], run["usage"]["input_tokens"], run["waiting"]) == ("finished", 27, [])
        assert sum(day["input_tokens"] for day in client.get("/usage").json()["days"]) == 27


def test_an_incomplete_or_invalid_answer_is_refused_and_the_run_still_waits(tmp_path: Path) -> None:
    PAID.clear()
    model = ScriptedModel([calls(ToolCall("c1", "pay", '{"francs": 3}'), ToolCall("c2", "pay", '{"francs": 4}'))])
    file = tmp_path / "access.yaml"
    ada = add_token(file, "ada", "acme", user="ada", scopes=("run", "read", "approve"))
    others = {
        "bob": (404, add_token(file, "bob", "acme", user="bob", scopes=("run", "read", "approve"))),
        "other tenant": (404, add_token(file, "eve", "evil", user="ada", scopes=("run", "read", "approve"))),
        "may not approve": (403, add_token(file, "ada2", "acme", user="ada")),
    }
    agents = [Agent(model, tools=[pay], name="shop"), Agent(model, tools=[pay], name="bank")]
    with served(*agents, access=Access(file)) as client:
        client.http.headers["Authorization"] = f"Bearer {ada}"
        waiting = events(client, run_input("Pay."))[-1].outcome.interrupts
        yes, no = {"approved": True}, {"approved": False}
        both = answering(waiting, yes, yes)
        for refused, what in (
            (answering(waiting[:1], yes), f"no answer to the interrupt {waiting[1].id!r}"),
            (answering([*waiting, waiting[0]], yes, yes, no), "several answers"),
            (answering(waiting, "yes", {"approved": "yes"}), "resume[1].payload: approved"),
            (answering(waiting, {"approved": True, "reason": "x"}, yes), "reason: only valid if approved is false"),
            (answering(waiting, {"approved": True, "extra": 1}, yes), "extra: unknown field"),
            (both.model_copy(update={"messages": run_input("New").messages}), "new message"),
            (
                both.model_copy(update={"forwarded_props": {"additional_kwargs": {"a": 1}}}),
                "omit them",
            ),
        ):
            answer = sent(client, refused)
            assert answer.status_code == 422 and what in answer.text, answer.text
        assert sent(client, answering(waiting, yes, yes), agent="bank").status_code == 404
        for status, token in others.values():
            client.http.headers["Authorization"] = f"Bearer {token}"
            assert sent(client, answering(waiting, yes, yes)).status_code == status
        client.http.headers["Authorization"] = f"Bearer {ada}"
        assert PAID == [] and len(model.requests) == 1
        assert client.get("/runs").json()["runs"][0]["status"] == "waiting"


def test_calls_of_one_run_are_decided_over_several_endpoints(tmp_path: Path) -> None:
    PAID.clear()
    made = [ToolCall(f"c{at}", "pay", f'{{"francs": {at}}}') for at in range(3)]
    agent = Agent(ScriptedModel.repeat(calls(*made), "Paid."), tools=[pay], name="shop")
    with served(agent, store=RunStore(tmp_path / "runs.db")) as client:
        waiting = events(client, run_input("Pay."))[-1].outcome.interrupts
        run = client.get("/runs").json()["runs"][0]["id"]
        first = {"decisions": {"c0": {"approve": True, "arguments": {"francs": 9}}}}
        assert client.post(f"/runs/{run}/decisions", first).status_code == 200
        second = {"run": run, "decisions": {"c1": {"approve": False}}}
        assert client.post("/inspector/api/decide", second).status_code == 200
        assert sent(client, answering(waiting, *[{"approved": True}] * 3)).status_code == 422
        assert texts(events(client, answering(waiting[2:], {"approved": True}))) == "Paid."
        assert until(lambda: client.get(f"/runs/{run}").json()["status"] == "finished") and sorted(PAID) == [2, 9]


def test_a_run_whose_client_leaves_during_its_answer_does_not_wait_forever(tmp_path: Path) -> None:
    PAID.clear()
    is_called, may_return = threading.Event(), threading.Event()

    class SlowStore(RunStore):
        def claim(self, *values: Any, **options: Any) -> Any:
            attempt = super().claim(*values, **options)
            is_called.set()
            assert may_return.wait(LONG)
            return attempt

    agent = Agent(
        ScriptedModel.repeat(calls(ToolCall("c1", "pay", '{"francs": 3}')), "Paid."), tools=[pay], name="shop"
    )
    with served(agent, store=SlowStore(tmp_path / "runs.db")) as client:
        waiting = events(client, run_input("Pay."))[-1].outcome.interrupts
        run = client.get("/runs").json()["runs"][0]["id"]
        body = answering(waiting, {"approved": True}).model_dump_json(by_alias=True)
        head = "POST /agents/shop/ag-ui HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            assert is_called.wait(LONG)
        time.sleep(0.2)  # the server notices that the client left
        may_return.set()
        # It is cancelled, or finished if the server notices too late that the client left.
        assert until(lambda: client.get(f"/runs/{run}").json()["status"] in ("cancelled", "finished"))


def test_a_run_after_a_tool_of_the_front_end_waits_for_a_call_of_an_inner_agent() -> None:
    PAID.clear()
    inner = Agent(ScriptedModel([calls(ToolCall("i1", "pay", '{"francs": 9}')), "Paid."]), tools=[pay], name="bank")
    bank = inner.as_tool(name="bank", description="Pays.")
    outer = ScriptedModel(
        [calls(ToolCall("c1", "ask", '{"what": "size"}')), calls(ToolCall("c2", "bank", '{"input": "Pay."}')), "Done."]
    )
    with served(Agent(outer, "Sell.", tools=[bank], name="shop")) as client:
        first = events(client, run_input("Buy.", tools=[ASK]))
        call = next(one for one in first if one.type == "TOOL_CALL_START")
        made: Any = {"id": call.tool_call_id, "type": "function", "function": {"name": "ask", "arguments": "{}"}}
        more: Any = [
            UserMessage(id="u1", role="user", content="Buy."),
            Answer(id=call.parent_message_id, role="assistant", tool_calls=[made]),
            ToolMessage(id="m3", role="tool", tool_call_id=call.tool_call_id, content="large"),
        ]
        second = events(client, run_input("", messages=more, tools=[ASK]))
        (waiting,) = second[-1].outcome.interrupts
        begun = [one.tool_call_id for one in second if one.type == "TOOL_CALL_START"]
        assert begun == [waiting.tool_call_id] and waiting.metadata == {"name": "pay", "arguments": '{"francs": 9}'}
        until(lambda: len(client.get("/runs").json()["runs"]) == 2)
        last = events(client, answering([waiting], {"approved": True}))
        assert (texts(last), PAID) == ("Done.", [9]) and "TOOL_CALL_START" not in kinds(last)
        assert [one.tool_call_id for one in last if one.type == "TOOL_CALL_RESULT"] == begun
        assert [one.text for one in outer.requests[-1].messages][1:4] == ["Buy.", "", "large"]


def test_calls_of_a_token_without_the_scope_to_approve_are_denied(tmp_path: Path) -> None:
    PAID.clear()
    model = ScriptedModel([calls(ToolCall("c1", "pay", '{"francs": 3}')), "Not paid."])
    token = add_token(tmp_path / "access.yaml", "ci", "acme")
    with served(Agent(model, tools=[pay], name="shop"), access=Access(tmp_path / "access.yaml")) as client:
        client.http.headers["Authorization"] = f"Bearer {token}"
        assert (events(client, run_input("Pay."))[-1].outcome.type, PAID) == ("success", [])


def test_an_answered_run_of_a_killed_server_is_finished_by_the_next_server(tmp_path: Path) -> None:
    PAID.clear()
    file = tmp_path / "runs.db"
    agent = Agent(ScriptedModel([calls(ToolCall("c1", "pay", '{"francs": 3}')), "Paid."]), tools=[pay], name="shop")
    store = RunStore(file)
    with served(agent, store=store) as client:
        events(client, run_input("Pay."))
        run = client.get("/runs").json()["runs"][0]["id"]
    assert store.decide(run, {"c1": Approved()}) == "queued" and store.begin_attempt(run) is not None
    assert store.begin_attempt(run) is None
    with served(agent, store=store) as client:
        assert until(lambda: client.get(f"/runs/{run}").json()["status"] == "finished") and PAID == [3]
    store.close()


def test_an_answered_run_of_a_stopped_server_is_finished_by_the_next_server(tmp_path: Path) -> None:
    PAID.clear()
    begun = threading.Event()

    def late(_: Composition) -> Delayed:
        begun.set()
        return Delayed(300, "late")

    paid = Reply(Message("assistant", "Paid."), usage=Usage(7, 1))
    model = ScriptedModel([calls(ToolCall("c1", "pay", '{"francs": 3}')), late, paid])
    agent = Agent(model, tools=[pay], name="shop")
    store = RunStore(tmp_path / "runs.db")
    options = ServerOptions(grace_seconds=0.1)
    with served(agent, store=store, options=options) as client, ThreadPoolExecutor(1) as threads:
        waiting = events(client, run_input("Pay."))[-1].outcome.interrupts
        run = client.get("/runs").json()["runs"][0]["id"]
        answered = threads.submit(events, client, answering(waiting, {"approved": True}))
        assert begun.wait(LONG)
        client.running.should_exit = True
        assert (answered.result()[-1].type, answered.result()[-1].code) == ("RUN_ERROR", "stopped")
        assert until(lambda: store.get(run).state == "queued") and PAID == [3]
    with served(agent, store=store) as client:
        assert until(lambda: client.get(f"/runs/{run}").json()["status"] == "finished") and PAID == [3]
        assert client.get(f"/runs/{run}").json()["usage"]["input_tokens"] == 17
        # A server counts the usage of a run right after it has stored the end of the run.
        assert until(lambda: [day["input_tokens"] for day in client.get("/usage").json()["days"]] == [17])
    store.close()


class Price(BaseModel):
    francs: int


NEEDS: Any = {"type": "object", "properties": {"currency": {"type": "string"}}, "required": ["currency"]}


def test_kwargs_types_and_invalid_inputs_are_checked_before_any_event_is_streamed() -> None:
    info = AdditionalInfoPrompt(Template("In {{ currency }}.", params_schema=NEEDS))
    model = ScriptedModel(['{"francs": 30}'])
    with served(Agent(model, layers=Layers("Sell.", before_input=info), output=Price, name="shop")) as client:
        missing = sent(client, run_input("Price?"))
        assert missing.status_code == 422 and set(missing.json()["error"]["additional_kwargs"]) == {"currency"}
        props = {"additional_kwargs": {"currency": "CHF"}}
        for more, what in (
            ({"forwarded_props": {"kwargs": 1}}, "kwargs: unknown field"),
            ({"forwarded_props": 3}, "expected an object"),
            ({"state": {"x": 1}}, "state: agents do not store state"),
            ({"resume": [{"interrupt_id": "i", "status": "resolved"}]}, "unknown run"),
            ({"messages": []}, "expected at least one message"),
            ({"messages": [Answer(id="a", role="assistant", tool_calls=[OPEN])]}, "the calls o1 have no result"),
            (
                {
                    "messages": [
                        Answer(id="a", role="assistant", tool_calls=[{**OPEN, "id": ""}]),
                        *run_input("x").messages,
                    ]
                },
                "have no result",
            ),
            ({"tools": [Tool(name="a b", description="")]}, "tools[0].name"),
        ):
            refused = sent(client, run_input("x", **{"forwarded_props": props, **more}))
            assert 400 <= refused.status_code < 500 and what in refused.text, refused.text
        assert sent(client, run_input("x"), agent="other").status_code == 404
        assert client.post("/agents/shop/ag-ui", {"threadId": "t"}).status_code == 422
        found = events(client, run_input("Price?", forwarded_props=props))
        assert found[-1].result == {"francs": 30}
        assert [one.delta for one in found if one.type == "TEXT_MESSAGE_CONTENT"] == ['{"francs": 30}']


@pytest.mark.parametrize("reply", [CutOff("Half of"), RuntimeError("password=hunter2")])
def test_a_run_that_fails_ends_with_an_error_without_internal_text(reply: Any) -> None:
    model = ScriptedModel([calls(ToolCall("c1", "stock", '{"book": "Emma"}')), reply])
    with served(Agent(model, tools=[stock], name="shop")) as client:
        found = events(client, run_input("How many?"))
        assert kinds(found)[-1] == "RUN_ERROR" and "hunter2" not in found[-1].message and found[-1].code


def test_media_of_the_user_reach_a_model_that_accepts_them() -> None:
    data = {"type": "data", "value": "JVBERi0xLjE="}
    parts: list[Any] = [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "url", "value": "https://example.org/a.png", "mimeType": "image/png"}},
        {"type": "document", "source": {**data, "mimeType": "application/pdf"}, "metadata": {"filename": "a.pdf"}},
        {"type": "audio", "source": {**data, "mimeType": "audio/mpeg"}},
        {"type": "video", "source": {"type": "url", "value": "https://example.org/a.mp4"}},
    ]
    model = ScriptedModel.repeat("Seen.")
    with served(Agent(model, name="shop")) as client:
        message: Any = {"id": "u1", "role": "user", "content": parts}
        body = {**run_input("x").model_dump(mode="json", by_alias=True), "messages": [message]}
        assert client.post("/agents/shop/ag-ui", body).status_code == 200
        received = model.requests[-1].messages[-1].parts
        assert [part.kind for part in received] == ["text", "image", "file", "audio", "video"]
        media: list[Any] = list(received[1:])
        assert [part.media_type for part in media[:3]] == ["image/png", "application/pdf", "audio/mpeg"]
        assert (media[1].name, media[1].source) == ("a.pdf", b"%PDF-1.1")
        for source in (
            {"type": "file", "value": "file_1"},
            {"type": "url", "value": "http://127.0.0.1/a.png"},
            {"type": "data", "value": "not base64", "mimeType": "image/png"},
        ):
            body["messages"] = [{**message, "content": [{"type": "image", "source": source}]}]
            answer = client.post("/agents/shop/ag-ui", body)
            assert answer.status_code in (400, 422), source
