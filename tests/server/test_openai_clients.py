"""The official SDK of OpenAI, unchanged, as a client of agents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from agentkit import Agent, Layers, Message, ModelSettings, Reply, ScriptedModel, ToolCall, Usage, tool
from agentkit.guards import Stop, guard
from agentkit.models import ModelInterrupted, ModelRateLimited, ModelUnavailable
from agentkit.prompts import AdditionalInfoPrompt, Template
from agentkit.server import ServerOptions
from agentkit.testing import CutOff, Delayed
from tests.raising import raises
from tests.server.serving_agents import Client, served
from tests.waiting import LONG

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
HI: Any = [{"role": "user", "content": "Hi"}]


def calls(*named: tuple[str, str], text: str = "") -> Message:
    made = tuple([ToolCall(f"c{at}", name, arguments) for at, (name, arguments) in enumerate(named)])
    return Message("assistant", text, tool_calls=made)


@tool
def stock(book: str) -> str:
    """Return the number in stock."""
    return f"7 of {book}"


class Shop:
    """A server with one agent, whose model answers from a list."""

    def __init__(self, client: Client, model: ScriptedModel) -> None:
        self.client, self.model = client, model
        self.openai = client.openai()

    @property
    def sent(self) -> list[dict[str, Any]]:
        return list(self.model.requests[-1].to_openai()["messages"])


def shop(*replies: Any, **agent: Any) -> Iterator[Shop]:
    model = ScriptedModel(replies)
    with served(Agent(model, layers=agent.pop("layers", Layers("You sell books.")), name="shop", **agent)) as client:
        yield Shop(client, model)


@pytest.fixture(scope="module")
def unasked() -> Iterator[Shop]:
    """A shop whose model receives no request."""
    yield from shop("ok", tools=[stock])


def image(url: str) -> Any:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


def text_of(stream: Any) -> str:
    return "".join([chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices])


def test_a_model_that_reports_no_tokens_has_an_estimate_in_the_answer_only() -> None:
    agent = Agent(ScriptedModel.repeat("Four words are here."), "x", name="a")
    with served(agent) as client:
        sdk = client.openai()
        messages: Any = [{"role": "user", "content": "Hi there"}]
        chat = sdk.chat.completions.create(model="a", messages=messages)
        assert chat.usage is not None and chat.usage.prompt_tokens > 2 and 3 < chat.usage.completion_tokens < 9
        assert chat.usage.total_tokens == chat.usage.prompt_tokens + chat.usage.completion_tokens
        response = sdk.responses.create(model="a", input="Hi there")
        assert response.usage is not None and response.usage.total_tokens == chat.usage.total_tokens
        assert sum(day["input_tokens"] for day in client.get("/usage").json()["days"]) == 0


def test_messages_of_the_client_follow_the_prompt_of_the_agent() -> None:
    for one in shop(Reply(Message("assistant", "Hello."), Usage(12, 3, 8))):
        done = one.openai.chat.completions.create(
            model="shop",
            messages=[
                {"role": "developer", "content": "Talk like a pirate."},
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Arr."},
                {"role": "user", "content": [{"type": "text", "text": "And you?"}]},
            ],
            temperature=0.5,
            max_completion_tokens=50,
        )
        assert done.choices[0].message.content == "Hello."
        assert done.choices[0].finish_reason == "stop"
        assert done.usage is not None and (done.usage.prompt_tokens, done.usage.completion_tokens) == (12, 3)
        assert done.usage.prompt_tokens_details is not None and done.usage.prompt_tokens_details.cached_tokens == 8
        assert one.sent[0]["role"] == "system"
        assert [message["content"] for message in one.sent] == [
            "You sell books.", "Talk like a pirate.", "Hi", "Arr.", "And you?",
        ]  # fmt: skip


def test_settings_of_a_request_reach_the_model() -> None:
    seen: list[ModelSettings] = []

    class Watched(ScriptedModel):
        def with_settings(self, settings: ModelSettings) -> ScriptedModel:
            seen.append(settings)
            return super().with_settings(settings)

    with served(Agent(Watched(["ok"]), name="shop")) as client:
        client.openai().chat.completions.create(
            model="shop", messages=HI, temperature=0.5, max_tokens=9, stop=["x"], seed=3, reasoning_effort="low"
        )
    assert seen == [ModelSettings(temperature=0.5, max_tokens=9, stop=("x",), seed=3, effort="low")]


def test_a_stream_contains_the_text_in_pieces_and_the_usage() -> None:
    for one in shop(Reply(Message("assistant", "One two three."), Usage(5, 4))):
        chunks = list(
            one.openai.chat.completions.create(
                model="shop", messages=HI, stream=True, stream_options={"include_usage": True}
            )
        )
        pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
        assert list(filter(None, pieces)) == ["One", " two", " three."]
        assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 9
        assert chunks[-2].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_the_text_before_tools_of_the_agent_is_the_same_streamed_or_complete(stream: bool) -> None:
    for one in shop(calls(("stock", '{"book": "Emma"}'), text="I look."), "There are seven.", tools=[stock]):
        done: Any = one.openai.chat.completions.create(model="shop", messages=HI, stream=stream)
        assert (text_of(done) if stream else done.choices[0].message.content) == "I look.\n\nThere are seven."
        assert one.sent[-1]["content"] == "7 of Emma"


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_of_the_client_ends_the_answer_with_its_call(stream: bool) -> None:
    for one in shop(calls(("weather", '{"city": "Bern"}')), "It rains."):
        if stream:
            with one.openai.chat.completions.stream(model="shop", messages=HI, tools=[WEATHER]) as events:
                message: Any = events.get_final_completion().choices[0].message
        else:
            done = one.openai.chat.completions.create(model="shop", messages=HI, tools=[WEATHER])
            assert done.choices[0].finish_reason == "tool_calls"
            message = done.choices[0].message
        call = message.tool_calls[0]
        assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Bern"})
        result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        answer = one.openai.chat.completions.create(
            model="shop", messages=[*HI, message.model_dump(exclude_none=True), result], tools=[WEATHER]
        )
        assert answer.choices[0].message.content == "It rains."
        assert [said["role"] for said in one.sent] == ["system", "user", "assistant", "tool"]
        assert one.sent[-1]["content"] == "rain"


def test_earlier_results_of_tools_of_the_agent_remain_after_the_answer_of_the_client() -> None:
    first = calls(("stock", '{"book": "Emma"}'))
    for one in shop(first, calls(("weather", '{"city": "Bern"}')), "Seven, and rain.", tools=[stock]):
        asked = one.openai.chat.completions.create(model="shop", messages=HI, tools=[WEATHER]).choices[0].message
        assert asked.tool_calls is not None and [call.function.name for call in asked.tool_calls] == ["weather"]  # type: ignore[union-attr]
        result: Any = {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "rain"}
        given: Any = [*HI, asked.model_dump(exclude_none=True), result]
        done = one.openai.chat.completions.create(model="shop", messages=given, tools=[WEATHER])
        assert done.choices[0].message.content == "Seven, and rain."
        assert [said.get("content") for said in one.sent if said["role"] == "tool"] == ["7 of Emma", "rain"]


def test_a_reply_with_calls_of_both_returns_only_the_calls_of_the_client_and_runs_no_tool() -> None:
    ran: list[str] = []

    def order(book: str) -> str:
        ran.append(book)
        return "ordered"

    both = calls(("order", '{"book": "Emma"}'), ("weather", '{"city": "Bern"}'))
    for one in shop(both, "Fine.", tools=[order]):
        asked = one.openai.chat.completions.create(model="shop", messages=HI, tools=[WEATHER]).choices[0].message
        assert asked.tool_calls is not None and [call.function.name for call in asked.tool_calls] == ["weather"]  # type: ignore[union-attr]
        assert ran == []
        result: Any = {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "rain"}
        given: Any = [*HI, asked.model_dump(exclude_none=True), result]
        one.openai.chat.completions.create(model="shop", messages=given, tools=[WEATHER])
        assert [len(said.get("tool_calls", ())) for said in one.sent if said["role"] == "assistant"] == [1]


def test_a_tool_of_the_agent_that_needs_a_person_is_denied_with_the_reason() -> None:
    ran: list[int] = []

    @tool(approval="always")
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    for one in shop(calls(("pay", '{"amount": 3}')), "I may not.", tools=[pay]):
        done = one.openai.chat.completions.create(model="shop", messages=HI)
        assert done.choices[0].message.content == "I may not."
        assert ran == [] and "this endpoint has no approval" in one.sent[-1]["content"]


class City(BaseModel):
    name: str
    inhabitants: int


def test_an_answer_has_the_type_of_the_client() -> None:
    for one in shop('{"name": "Bern", "inhabitants": 134000}', '{"name": "Bern", "inhabitants": 1}'):
        done = one.openai.chat.completions.parse(model="shop", messages=HI, response_format=City)
        assert done.choices[0].message.parsed == City(name="Bern", inhabitants=134000)
        assert one.model.requests[-1].output_schema is not None
        response = one.openai.responses.parse(model="shop", input="Hi", text_format=City)
        assert response.output_parsed == City(name="Bern", inhabitants=1)


class Country(BaseModel):
    name: str
    cities: list[City]
    neighbours: list[Country]


def test_an_answer_of_a_nested_type_is_requested_and_checked() -> None:
    bern = {"name": "Bern", "inhabitants": 1}
    right = {"name": "Switzerland", "cities": [bern], "neighbours": [{"name": "F", "cities": [], "neighbours": []}]}
    wrong = {**right, "cities": [{"name": "Bern"}]}
    for one in shop(json.dumps(wrong), json.dumps(right), *[json.dumps(wrong)] * 3):
        done = one.openai.chat.completions.parse(model="shop", messages=HI, response_format=Country)
        parsed = done.choices[0].message.parsed
        assert parsed is not None and parsed.cities == [City(**bern)] and parsed.neighbours[0].name == "F"
        assert "cities[0].inhabitants" in one.sent[-1]["content"]
        with raises(openai.InternalServerError, code="invalid_output"):
            one.openai.responses.parse(model="shop", input="Hi", text_format=Country)


@pytest.mark.parametrize("reference", ["file:///etc/passwd", "http://127.0.0.1:1/schema.json", "#/$defs/nothing"])
def test_a_schema_with_an_external_reference_is_refused_and_nothing_is_fetched(unasked: Shop, reference: str) -> None:
    schema: Any = {"name": "x", "schema": {"type": "object", "properties": {"a": {"$ref": reference}}}}
    with raises(openai.BadRequestError, code="invalid_value", param="response_format"):
        unasked.openai.chat.completions.create(
            model="shop", messages=HI, response_format={"type": "json_schema", "json_schema": schema}
        )


def test_responses_continue_each_other() -> None:
    for one in shop("I am Ada.", "Ada.", "Yes."):
        first = one.openai.responses.create(model="shop", input="Who are you?", instructions="Be short.")
        second = one.openai.responses.create(model="shop", input="Again?", previous_response_id=first.id)
        assert second.output_text == "Ada."
        assert [said["content"] for said in one.sent] == ["You sell books.", "Who are you?", "I am Ada.", "Again?"]
        with pytest.raises(openai.NotFoundError):
            one.openai.responses.create(model="shop", input="x", previous_response_id="resp_nothing")
        unkept = one.openai.responses.create(model="shop", input="x", store=False)
        with pytest.raises(openai.NotFoundError):
            one.openai.responses.create(model="shop", input="x", previous_response_id=unkept.id)


def test_responses_with_tools_of_the_client() -> None:
    declared: Any = {"type": "function", "strict": True, **WEATHER["function"]}
    for one in shop(calls(("weather", '{"city": "Bern"}'), text="Let me see."), "It rains.", "Still."):
        with one.openai.responses.stream(model="shop", input="Weather?", tools=[declared]) as events:
            kinds = [event.type for event in events]
            response = events.get_final_response()
        assert "response.function_call_arguments.done" in kinds and kinds[-1] == "response.completed"
        call: Any = response.output[-1]
        assert (call.type, call.name) == ("function_call", "weather")
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
        following: Any = {"previous_response_id": response.id, "tools": [declared]}
        done = one.openai.responses.create(model="shop", input=[output], **following)
        assert done.output_text == "It rains."
        assert [said["role"] for said in one.sent] == ["system", "user", "assistant", "tool"]
        again = one.openai.responses.create(model="shop", input="And now?", previous_response_id=done.id)
        assert again.output_text == "Still."
        roles = ["system", "user", "assistant", "tool", "assistant", "user"]
        assert [said["role"] for said in one.sent] == roles  # all of the conversation, not only the last run
        runs = one.client.get("/runs").json()["runs"]
        assert [(run["status"], run["finish_reason"]) for run in runs][1:] == [
            ("finished", "stop"),
            ("finished", "tool_calls"),
        ]
        called = runs[-1]
        decided = {"decisions": {called["waiting"][0]["id"]: {"approve": True}}}
        assert one.client.post(f"/runs/{called['id']}/decisions", decided).json()["error"]["code"] == "not_waiting"
        shown = [one.client.post("/inspector/api/compose", {"base": {"run": run["id"]}}) for run in runs]
        assert [answer.status_code for answer in shown] == [200] * 3


def test_missing_kwargs_are_an_error_422_that_names_all_of_them() -> None:
    properties = {"root": {"type": "string"}, "level": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["root", "level"]}
    info = AdditionalInfoPrompt(Template("{{ root }} {{ level }}", params_schema=schema))
    for one in shop("ok", layers=Layers(before_input=info)):
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            one.openai.chat.completions.create(model="shop", messages=HI, stream=True)
        body: Any = caught.value.body
        assert set(body["additional_kwargs"]) == {"root", "level"} and body["code"] == "invalid_kwargs"
        answer = one.client.post("/runs", {"agent": "shop", "input": "Hi"})
        assert answer.status_code == 422 and set(answer.json()["error"]["additional_kwargs"]) == {"root", "level"}
        assert one.client.get("/runs").json()["runs"] == []
        schema = one.client.get("/agents/shop/schema").json()
        assert set(schema["required"]) == {"root", "level"}
        kwargs = {"additional_kwargs": {"root": "a", "level": 3}}
        assert one.openai.chat.completions.create(model="shop", messages=HI, extra_body=kwargs).choices


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "king"),
        ({"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "last message"),
        ({"messages": image("file:///etc/passwd")}, "messages"),
        ({"messages": image("http://127.0.0.1/x")}, "messages"),
        ({"n": 2}, "n:"),
        ({"logprobs": True}, "logprobs"),
        ({"frequency_penalty": 1.0}, "frequency_penalty"),
        ({"temperature": -1}, "temperature"),
        ({"temprature": 1}, "temperature"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1]"),
        ({"tools": [{"type": "function", "function": {"name": "stock"}}]}, "stock"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "t", "parameters": {"type": "array"}}}]}, "t"),
        ({"tool_choice": {"type": "function", "function": {"name": "nope"}}}, "nope"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream"),
        ({"messages": [{"role": "user", "content": "x"}], "model": ["shop"]}, "model"),
    ],
)  # fmt: skip
def test_an_unsupported_option_is_an_error_400_with_its_name(unasked: Shop, change: dict[str, Any], what: str) -> None:
    answer = unasked.client.post("/v1/chat/completions", {"model": "shop", "messages": HI, **change})
    assert answer.status_code == 400, answer.text
    assert what in answer.json()["error"]["message"], answer.text
    assert not unasked.model.requests


@pytest.mark.parametrize("is_chat", [True, False])
def test_a_client_may_send_128_tools_and_not_more(is_chat: bool) -> None:
    for one in shop("ok"):
        named = [{"name": f"tool{number}"} for number in range(129)]
        tools: Any = [{"type": "function", **({"function": name} if is_chat else name)} for name in named]
        chat, responses = one.openai.chat.completions, one.openai.responses
        ask: Any = partial(chat.create, messages=HI) if is_chat else partial(responses.create, input="Hi")
        ask(model="shop", tools=tools[:128])
        assert len(one.model.requests[0].context.tools) == 128
        with raises(openai.BadRequestError, code="invalid_value", param="tools"):
            ask(model="shop", tools=tools)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelUnavailable("refused", model="m", host="secret.internal:80", retry_after=3), openai.InternalServerError),
        (ModelRateLimited("slow down", model="m", host="secret.internal:80", retry_after=3), openai.RateLimitError),
        (ModelInterrupted("cut", model="m", host="secret.internal:80"), openai.InternalServerError),
        (RuntimeError("password=hunter2"), openai.InternalServerError),
        (ConnectionResetError("password=hunter2"), openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_of_the_model_is_an_error_of_its_kind_without_internal_text(
    error: Exception, kind: type[openai.APIStatusError], stream: bool
) -> None:
    for one in shop(error):
        with pytest.raises(kind) as caught:
            one.openai.chat.completions.create(model="shop", messages=HI, stream=stream)
        assert caught.value.code is not None
        assert "secret" not in caught.value.response.text and "hunter2" not in caught.value.response.text
        if isinstance(error, ModelUnavailable | ModelRateLimited):
            assert caught.value.response.headers["retry-after"] == "3"


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_that_takes_too_long_is_an_error_with_the_code_timeout(stream: bool) -> None:
    agent = Agent(ScriptedModel([Delayed(LONG, "late"), TimeoutError("of a model")]), name="shop")
    with served(agent, options=ServerOptions(run_seconds=0.2)) as client:
        ask = partial(client.openai().chat.completions.create, model="shop", messages=HI, stream=stream)
        for code in ("timeout", "internal_error"):
            with raises(openai.InternalServerError, code=code):
                ask()


def test_a_guard_that_stops_the_run_is_an_error_with_a_code() -> None:
    agent = Agent(ScriptedModel.repeat("Hi."), guards=[guard("input")(lambda text: Stop("no shouting"))], name="shop")
    with served(agent) as client, raises(openai.ConflictError, code="guard_stopped"):
        client.openai().chat.completions.create(model="shop", messages=HI)


def test_a_stream_that_is_interrupted_ends_with_an_error() -> None:
    for one in shop(CutOff("Half of"), CutOff("Half of")):
        stream = one.openai.chat.completions.create(model="shop", messages=HI, stream=True)
        with raises(openai.APIError, code="model_interrupted"):
            list(stream)
        kinds = [event.type for event in one.openai.responses.create(model="shop", input="Hi", stream=True)]
        assert kinds[-1] == "response.failed"


async def test_the_async_client_sends_many_requests_at_once() -> None:
    import asyncio

    with served(Agent(ScriptedModel.repeat("Hello."), name="shop")) as client:
        async with client.async_openai() as asked:
            done = await asyncio.gather(*[asked.chat.completions.create(model="shop", messages=HI) for _ in range(20)])
        assert [one.choices[0].message.content for one in done] == ["Hello."] * 20
