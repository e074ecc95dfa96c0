"""Stored responses: read, listed and deleted by the callers that may read them as runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from agentkit import Agent, Message, Reply, ScriptedModel, ToolCall, Usage
from agentkit.models import ModelSettings
from agentkit.server import Access, Server, add_token
from agentkit.testing import CutOff
from tests.raising import raises
from tests.server.serving_agents import served

IMAGE = "data:image/png;base64,iVBORw0KGgo="
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
FIELDS = {
    *("id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id"),
    *("instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p"),
    *("presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "user", "store"),
    *("max_output_tokens", "max_tool_calls", "background", "service_tier", "metadata", "safety_identifier"),
    "prompt_cache_key",
}
"""Required fields of a response in Open Responses 2026-04-24."""


def opened(*replies: Any) -> TestClient:
    agent = Agent(ScriptedModel(replies).with_settings(ModelSettings(temperature=0.5)), "You sell.", name="shop")
    return TestClient(Server([agent]).app, base_url="http://localhost", client=("127.0.0.1", 5000))


def created(client: TestClient, data: Any, **more: Any) -> dict[str, Any]:
    answer = client.post("/v1/responses", json={"model": "shop", "input": data, **more})
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(Message("assistant", "Hello."), Usage(5, 2)), "completed"),
        (Message("assistant", "See.", tool_calls=(ToolCall("c1", "look", "{}"),)), "completed"),
        (Reply(Message("assistant", "Hel"), finish_reason="length"), "incomplete"),
        (Reply(Message("assistant", "No."), finish_reason="refusal"), "completed"),
    ],
)
def test_a_response_has_every_field_and_is_read_as_it_was_sent(reply: Any, status: str) -> None:
    settings = {"metadata": {"a": "b"}, "tools": [TOOL], "text": {"verbosity": "low"}, "instructions": "Be short."}
    with opened(reply) as client:
        response = created(client, "Hi", truncation="auto", max_tool_calls=3, safety_identifier="s", **settings)
        assert set(response) >= FIELDS
        assert (response["status"], response["completed_at"] is None) == (status, status == "incomplete")
        assert [item["status"] for item in response["output"]] == [status] * len(response["output"])
        echoed = [response[name] for name in ("truncation", "max_tool_calls", "safety_identifier", "metadata")]
        assert echoed == ["auto", 3, "s", {"a": "b"}] and response["text"]["verbosity"] == "low"
        assert (response["temperature"], response["top_p"]) == (0.5, 1)
        assert client.get(f"/v1/responses/{response['id']}").json() == response


def test_a_streamed_and_a_failed_response_are_read_with_their_last_state() -> None:
    with served(Agent(ScriptedModel(["Hello.", CutOff("Hel")]), name="shop")) as client:
        for state in ("completed", "failed"):
            events = list(client.openai().responses.create(model="shop", input="Hi", stream=True))
            last: Any = events[-1]
            stored = client.openai().responses.retrieve(last.response.id)
            assert (last.type, stored.status) == (f"response.{state}", state)
            assert stored.output == last.response.output
            assert (stored.error is None) == (state == "completed")


def test_input_items_are_listed_in_pages() -> None:
    content: Any = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": IMAGE}]
    calls = Message("assistant", tool_calls=(ToolCall("c1", "look", "{}"),))
    with served(Agent(ScriptedModel([calls, "Done.", "Again."]), name="shop")) as client:
        api = client.openai()
        first: Any = api.responses.create(
            model="shop", input=[{"role": "user", "content": content}], tools=[TOOL], instructions="Be short."
        )
        output: Any = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "seen"}
        second = api.responses.create(model="shop", input=[output], previous_response_id=first.id)
        last = api.responses.create(model="shop", input="And?", previous_response_id=second.id)
        items: list[Any] = list(api.responses.input_items.list(last.id, limit=2, order="asc"))
        kinds = ["message", "function_call", "function_call_output", "message", "message"]
        assert [item.type for item in items] == kinds
        assert [item.role for item in items if item.type == "message"] == ["user", "assistant", "user"]
        assert [part.type for part in items[0].content] == ["input_text", "input_image"]
        assert items[1].call_id == items[2].call_id == first.output[0].call_id
        assert len({item.id for item in items}) == 5
        newest = api.responses.input_items.list(last.id)
        assert [item.id for item in newest.data] == [item.id for item in reversed(items)]
        assert [len(list(api.responses.input_items.list(each.id))) for each in (first, second)] == [1, 3]
        page = client.get(f"/v1/responses/{last.id}/input_items?limit=2&after={items[4].id}").json()
        assert (page["first_id"], page["last_id"], page["has_more"]) == (items[3].id, items[2].id, True)
        end = client.get(f"/v1/responses/{last.id}/input_items?after={items[0].id}").json()
        assert end == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
        for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=nothing", "before=x"):
            answer = client.get(f"/v1/responses/{last.id}/input_items?{query}")
            assert answer.status_code == 400 and answer.json()["error"]["param"] == query.split("=")[0]
        assert client.get(f"/v1/responses/{last.id}?stream=true").status_code == 400


def test_references_to_items_are_read_as_the_items(tmp_path: Path) -> None:
    access = tmp_path / "access.yaml"
    ada, bob = [add_token(access, name, "acme", user=name) for name in ("ada", "bob")]
    calls = Message("assistant", "I look.", tool_calls=(ToolCall("c1", "look", "{}"), ToolCall("c2", "look", "{}")))
    model = ScriptedModel([calls, *["Done."] * 4])
    with served(Agent(model, name="shop"), access=Access(access)) as client:
        create: Any = client.openai(ada).responses.create
        first = create(model="shop", input="Hi", tools=[TOOL])
        [asked] = client.openai(ada).responses.input_items.list(first.id)
        ids = [asked.id, *[item.id for item in first.output]]
        references = [{"type": "item_reference", "id": ids[0]}, *[{"id": item_id} for item_id in ids[1:]]]
        result = {"type": "function_call_output", "output": "x"}
        results = [{**result, "call_id": item.call_id} for item in first.output[1:]]
        create(model="shop", input=[*references, *results], tools=[TOOL])
        messages = model.requests[-1].to_openai()["messages"]
        assert [(message["role"], message["content"]) for message in messages] == [
            *(("user", "Hi"), ("assistant", "I look."), ("tool", "x"), ("tool", "x")),
        ]
        unstored = create(model="shop", input="Hi", store=False).output[0].id
        user: Any = {"role": "user", "content": "Again."}
        unknown = (unstored, "msg_nothing", f"{ids[1]}0", f"msg_{'0' * 32}_0", "")
        for item_id, token in (*((item_id, ada) for item_id in unknown), (ids[1], bob)):
            with raises(openai.NotFoundError, code="item_not_found", param="input"):
                client.openai(token).responses.create(model="shop", input=[{"id": item_id}, user])
        with raises(openai.BadRequestError, param="input"):
            create(model="shop", input=[{"id": ids[0]}] * 1_001)


def test_media_without_a_form_in_the_api_are_listed_as_text() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    with opened("Hm.") as client:
        response = created(client, [{"role": "user", "content": [audio]}])
        [item] = client.get(f"/v1/responses/{response['id']}/input_items").json()["data"]
        assert [part["type"] for part in item["content"]] == ["input_text"]


def test_a_deleted_or_unstored_response_is_unknown_everywhere() -> None:
    with opened(*["Hm."] * 4) as client:
        kept = created(client, "Hi")
        response = created(client, "Hi", previous_response_id=kept["id"])
        unstored = created(client, "Hi", store=False)
        chat = client.post(
            "/v1/chat/completions", json={"model": "shop", "messages": [{"role": "user", "content": "x"}]}
        )
        path = f"/v1/responses/{response['id']}"
        assert client.delete(path).json() == {"id": response["id"], "object": "response", "deleted": True}
        ids = [response["id"], unstored["id"], "resp_", "resp_nothing", "nothing", response["id"][5:]]
        for response_id in [*ids, chat.json()["id"].replace("chatcmpl-", "resp_")]:
            path = f"/v1/responses/{response_id}"
            again = {"model": "shop", "input": "x", "previous_response_id": response_id}
            answers = [
                *(client.get(path), client.delete(path), client.get(f"{path}/input_items")),
                client.post("/v1/responses", json=again),
            ]
            assert [answer.status_code for answer in answers] == [404] * 4
            assert {answer.json()["error"]["type"] for answer in answers} == {"invalid_request_error"}
        assert client.get(f"/v1/responses/{kept['id']}").status_code == 200


def test_callers_read_the_responses_that_they_read_as_runs(tmp_path: Path) -> None:
    access = tmp_path / "access.yaml"
    other = add_token(access, "other", "acme")
    access.write_text(access.read_text().replace("    scopes", "    agents: [other]\n    scopes"))
    ada, bob = [add_token(access, name, "acme", user=name) for name in ("ada", "bob")]
    all_users, bolt = add_token(access, "all", "acme"), add_token(access, "bolt", "bolt")
    reader = add_token(access, "reader", "acme", scopes=("read",))
    agents = [Agent(ScriptedModel.repeat("Hm."), name=name) for name in ("shop", "other")]
    with served(*agents, access=Access(access)) as client:
        response = client.openai(ada).responses.create(model="shop", input="secret")
        path = f"/v1/responses/{response.id}"
        for token, query in ((bob, ""), (bolt, ""), (other, ""), (all_users, "?user=bob")):
            for answer in (client.get(f"{path}{query}", token), client.delete(f"{path}{query}", token)):
                assert answer.status_code == 404 and "secret" not in answer.text
            assert client.get(f"{path}/input_items{query}", token).status_code == 404
        assert client.get(f"{path}?user=ada", bob).status_code == 403
        assert client.delete(path, reader).status_code == 403
        for token, query in ((ada, ""), (all_users, ""), (all_users, "?user=ada"), (reader, "")):
            assert client.get(f"{path}{query}", token).json()["id"] == response.id
            assert "secret" in client.get(f"{path}/input_items{query}", token).text
        client.openai(ada).responses.delete(response.id)
        with pytest.raises(openai.NotFoundError):
            client.openai(all_users).responses.retrieve(response.id)


def test_a_streamed_refusal_of_a_typed_answer_has_its_events() -> None:
    schema = {"type": "json_schema", "name": "a", "schema": {"type": "object", "properties": {}}}
    refusal = Reply(Message("assistant", "No."), finish_reason="refusal")
    with served(Agent(ScriptedModel([refusal]), name="shop")) as client:
        text: Any = {"format": schema}
        with client.openai().responses.stream(model="shop", input="Hi", text=text) as events:
            kinds = [event.type for event in events]
            response: Any = events.get_final_response()
    assert kinds[-5:] == [
        *("response.refusal.delta", "response.refusal.done", "response.content_part.done"),
        *("response.output_item.done", "response.completed"),
    ]
    assert response.output[0].content[0].refusal == "No."
