"""The model that answers: by its name, by a fallback, and with endpoints that have stricter rules than others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from agentkit import (
    Agent,
    AnthropicModel,
    Chain,
    CompletionModel,
    FallbackModel,
    Limits,
    ModelError,
    ModelFellBack,
    ModelSettings,
    OfflineModel,
    OpenAIModel,
    OpenAIResponsesModel,
    ScriptedModel,
    Session,
    model,
    tool,
)
from agentkit.errors import AgentDefinitionError
from agentkit.memory import fact_extractor
from agentkit.models import (
    Model,
    ModelAuthError,
    ModelInterrupted,
    ModelRequestError,
    ModelUnavailable,
    Price,
)
from agentkit.testing import CutOff, RecordedModel
from agentkit.tools import Tool
from tests.models.asking import KEY, NOTHING_LEFT_OPEN, ask, composed
from tests.models.wire_forms import WIRES, model_of, wire_reply
from tests.raising import raises
from tests.servers import ChatServer, calls, chat_reply, chunk, completion, in_turn, sends, streams

pytestmark = NOTHING_LEFT_OPEN


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# Names


@pytest.mark.parametrize(
    ("name", "kind", "called", "host"),
    [
        ("openai:gpt-5-mini", OpenAIModel, "gpt-5-mini", "api.openai.com"),
        ("openai:ft:gpt-4o:org", OpenAIModel, "ft:gpt-4o:org", "api.openai.com"),
        ("responses:gpt-5", OpenAIResponsesModel, "gpt-5", "api.openai.com"),
        ("anthropic:claude-opus-4-8", AnthropicModel, "claude-opus-4-8", "api.anthropic.com"),
        ("http://localhost:8000/v1#qwen3", OpenAIModel, "qwen3", "localhost:8000"),
        ("https://example.com/v1#org/model:tag", OpenAIModel, "org/model:tag", "example.com"),
    ],
)
def test_a_name_selects_a_model(name: str, kind: type, called: str, host: str) -> None:
    made: Any = model(name, settings=ModelSettings(max_tokens=50))
    assert type(made) is kind
    assert (made.name, made.host, made.settings.max_tokens) == (called, host, 50)
    assert Agent(name).chain.model.name == called
    assert isinstance(model("offline"), OfflineModel)


@pytest.mark.parametrize(
    ("name", "what", "value"),
    [
        ("antropic:claude", "provider", "antropic"),
        ("mistrall:large", "provider", "mistrall"),
        ("gpt-5", "model", "gpt-5"),
        ("openai:", "model", "openai:"),
        ("openai", "model", "openai"),
        ("", "model", ""),
        (":", "provider", ""),
        ("offline:x", "model", "offline:x"),
        ("http://localhost:8000/v1", "address", None),
        ("http://localhost:8000/v1#", "address", None),
        ("localhost:8000/v1#qwen3", "address", None),
        ("localhost:8000", "address", None),
        ("10.0.0.7:8000/v1#qwen3", "address", None),
        ("[::1]:8000#qwen3", "address", None),
        ("gpu/v1#qwen3", "address", None),
        ("qwen2.5:7", "provider", "qwen2.5"),
        (None, "model", "NoneType"),
        (["openai:gpt-5"], "model", "list"),
    ],
)
def test_the_error_of_an_unknown_name_lists_the_valid_names(name: Any, what: str, value: str | None) -> None:
    with raises(AgentDefinitionError, name=what, value=value):
        model(name)


@pytest.mark.parametrize(
    "name", ["http://me:hunter2@#x", "http://#x", "htp://me:hunter2@h/v1#x", "me:hunter2@h:80#x", "hunter2@h:80#x"]
)
def test_an_invalid_address_is_refused_without_its_password(name: str) -> None:
    with pytest.raises((ModelRequestError, AgentDefinitionError)) as caught:
        model(name)
    assert "hunter2" not in str(caught.value) and "hunter2" not in str(vars(caught.value))


@pytest.mark.parametrize("kind", [OpenAIModel, OpenAIResponsesModel, AnthropicModel, CompletionModel])
def test_a_model_class_refuses_an_address_as_its_name(kind: Any) -> None:
    with raises(AgentDefinitionError, name="model") as caught:
        kind("http://me:hunter2@localhost:8000/v1#qwen3")
    assert "base_url=" in str(caught.value) and "hunter2" not in str(caught.value)


def test_a_parameter_for_a_model_accepts_its_name(tmp_path: Path) -> None:
    for make in (Agent, Chain, fact_extractor, lambda name: RecordedModel(name, tmp_path / "recording")):
        assert make("offline")
        with pytest.raises(AgentDefinitionError) as caught:
            make("gpt-5-mini")
        assert caught.value.name == "model"


def test_a_name_refuses_settings_that_its_model_does_not_support() -> None:
    with raises(AgentDefinitionError, name="seed"):
        model("anthropic:claude", settings=ModelSettings(seed=1))


# Fallback


def unavailable(text: str = "503") -> ModelUnavailable:
    return ModelUnavailable(text, model="first")


def test_the_next_model_is_used_if_a_model_is_unavailable_and_a_listener_receives_the_event() -> None:
    models = FallbackModel(
        ScriptedModel([unavailable()], name="a"),
        ScriptedModel([unavailable()], name="b"),
        ScriptedModel(["c!"], name="c"),
    )
    heard: list[Any] = []
    result = asyncio.run(Agent(models).run("Hi", on_event=heard.append))
    assert result.output == "c!"
    fell = [event for event in heard if isinstance(event, ModelFellBack)]
    assert [(event.step, event.model) for event in fell] == [(1, "b"), (1, "c")]
    assert all("503" in event.reason for event in fell)


def test_a_fallback_inside_of_another_fallback_is_not_a_piece_of_a_reply() -> None:
    inner = FallbackModel(ScriptedModel([unavailable()], name="a"), ScriptedModel([unavailable()], name="b"))
    heard: list[Any] = []
    models = FallbackModel(inner, ScriptedModel(["c!"], name="c"))
    assert asyncio.run(Agent(models).run("Hi", on_event=heard.append)).output == "c!"
    assert [event.model for event in heard if isinstance(event, ModelFellBack)] == ["b", "c"]


def test_other_errors_and_errors_after_a_piece_are_raised() -> None:
    for error in (ModelAuthError("no"), ModelRequestError("no"), ModelError("no")):
        with pytest.raises(type(error)):
            ask(FallbackModel(ScriptedModel([error]), ScriptedModel(["b"])))
    both = FallbackModel(ScriptedModel([ModelAuthError("no")]), ScriptedModel(["b"]), on=(ModelAuthError,))
    assert ask(both).message.text == "b"
    cut = FallbackModel(ScriptedModel([CutOff("Half")]), ScriptedModel(["b"]), on=(ModelInterrupted,))
    heard: list[str] = []
    with pytest.raises(ModelInterrupted):
        ask(cut, on_text=heard.append)
    assert "".join(heard) == "Half"


def test_if_all_models_are_unavailable_the_last_error_names_the_others() -> None:
    with raises(ModelUnavailable, args=("first: second",)) as caught:
        ask(FallbackModel(ScriptedModel([unavailable("first")]), ScriptedModel([unavailable("second")])))
    assert "first" in "".join(caught.value.__notes__)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FallbackModel(),
        lambda: FallbackModel(ScriptedModel(["a"])),
        lambda: FallbackModel(ScriptedModel(["a"]), 3),  # type: ignore[arg-type]
        lambda: FallbackModel("nobody:x", ScriptedModel(["a"])),
        lambda: FallbackModel(ScriptedModel(["a"]), ScriptedModel(["a"]), on=(ValueError,)),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_fallback_is_refused(make: Any) -> None:
    with pytest.raises(AgentDefinitionError):
        make()


def test_the_cost_is_the_cost_of_the_model_that_answered(server: ChatServer) -> None:
    name = server.on("priced", chat_reply("Hi"))
    dear = OpenAIModel("gone", base_url=server.url, max_retries=0, price=Price(input=100, output=100))
    cheap = OpenAIModel(name, base_url=server.url, price=Price(input=1, output=1))
    server.on("gone", sends({"error": {"message": "away"}}, 503))
    both = FallbackModel(dear, cheap)
    assert both.price == dear.price
    result = asyncio.run(Agent(both, limits=Limits(money=1)).run("Hi"))
    assert result.cost == pytest.approx(17 / 1_000_000)


def test_settings_of_a_run_apply_to_each_model_of_a_fallback(server: ChatServer) -> None:
    name = server.on("each", in_turn(sends({"error": {"message": "away"}}, 503), wire_reply(WIRES[0], "", "Hi")))
    other = server.on("each-other", wire_reply(WIRES[2], "", "Hello"))
    both = FallbackModel(model_of(WIRES[0], server, name), model_of(WIRES[2], server, other))
    assert asyncio.run(Agent(both).run("Hi", settings=ModelSettings(max_tokens=7))).output == "Hello"
    assert (server.to(name)[-1].body["max_tokens"], server.to(other)[-1].body["max_tokens"]) == (7, 7)
    with raises(AgentDefinitionError, name="seed"):
        Agent(both).run_sync("Hi", settings=ModelSettings(seed=7))


def test_a_fallback_in_the_middle_of_a_tool_loop_continues(server: ChatServer) -> None:
    for first in WIRES:
        for second in WIRES:
            one = server.on(
                "mid-a", in_turn(wire_reply(first, "Hm", "", ("x", "add", '{"a": 2, "b": 3}')), sends({}, 503))
            )
            two = server.on("mid-b", wire_reply(second, "", "It is 5."))
            both = FallbackModel(model_of(first, server, one), model_of(second, server, two))
            assert asyncio.run(Agent(both, tools=[add]).run("2+3?")).output == "It is 5."


# Gemini and DeepSeek

SIGNED = {"extra_content": {"google": {"thought_signature": "<Signature A>"}}}


def gemini(asked: Any) -> Any:
    """Refuse the first call of a step without a signature, as Gemini 3 does."""
    for message in asked.body["messages"]:
        for call in (message.get("tool_calls") or ())[:1]:
            if not call.get("extra_content", {}).get("google", {}).get("thought_signature"):
                text = "Function call is missing a thought_signature in functionCall parts."
                return JSONResponse([{"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}], 400)
    if any(message["role"] == "tool" for message in asked.body["messages"]):
        return chat_reply("It is 5.")(asked)
    both = calls(("function-call-1", "add", '{"a":2,"b":3}'), ("function-call-2", "add", '{"a":1,"b":1}'))
    both[0] |= SIGNED
    if asked.body.get("stream"):
        pieces = [{"index": number, **one} for number, one in enumerate(both)]
        return streams(chunk(role="assistant", tool_calls=pieces), chunk("tool_calls"))(asked)
    return sends(completion(None, both, "tool_calls"))(asked)


def deepseek(asked: Any) -> Any:
    """Refuse a reply without its thinking, as DeepSeek does in thinking mode."""
    for index, message in enumerate(asked.body["messages"]):
        if message["role"] == "assistant" and "reasoning_content" not in message:
            text = f"Missing `reasoning_content` field in the assistant message at message index {index}."
            return JSONResponse({"error": {"message": text, "code": "invalid_request_error"}}, 400)
    step = [message["role"] for message in asked.body["messages"]].count("tool")
    if step == 2:
        return wire_reply(WIRES[0], "Done", "It is 5.")(asked)
    return wire_reply(WIRES[0], f"Step {step}" if step == 0 else "", "", (f"call_{step}", "add", '{"a":2,"b":3}'))(
        asked
    )


def mistral(asked: Any) -> Any:
    """Refuse ids of calls in another form than nine letters and digits, as Mistral does."""
    calls_of = [call["id"] for message in asked.body["messages"] for call in message.get("tool_calls") or ()]
    results = [message["tool_call_id"] for message in asked.body["messages"] if message["role"] == "tool"]
    for id_ in (*calls_of, *results):
        if not (len(id_) == 9 and id_.isalnum()):
            text = f"Tool call id was {id_} but must be a-z, A-Z, 0-9, with a length of 9."
            return JSONResponse({"object": "error", "message": text, "code": "3280"}, 400)
    assert calls_of == results
    if len(results) == 2:
        return chat_reply("It is 5.")(asked)
    return chat_reply("", ("D681PevKs", "add", '{"a":2,"b":3}'))(asked)


@pytest.mark.parametrize("prefix", ["gemini:", "vertex:", ""])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_loop_of_gemini_works(server: ChatServer, prefix: str, stream: bool) -> None:
    name = server.on("gemini-3-pro", gemini)
    made: Model = OpenAIModel(name, base_url=server.url, max_retries=0)
    if prefix:
        made = model(f"{prefix}{name}", base_url=server.url, max_retries=0)
    listening: dict[str, Any] = {"on_event": lambda event: None} if stream else {}
    assert asyncio.run(Agent(made, tools=[add]).run("2+3?", **listening)).output == "It is 5."
    sent = server.to("gemini-3-pro")[-1].body["messages"][-3]["tool_calls"]
    assert sent[0]["extra_content"] == SIGNED["extra_content"]
    assert "extra_content" not in sent[1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_loop_of_deepseek_works(server: ChatServer, stream: bool) -> None:
    made = model(f"deepseek:{server.on('deepseek-reasoner', deepseek)}", base_url=server.url, max_retries=0)
    listening: dict[str, Any] = {"on_event": lambda event: None} if stream else {}
    assert asyncio.run(Agent(made, tools=[add]).run("2+3?", **listening)).output == "It is 5."
    sent = server.to("deepseek-reasoner")[-1].body["messages"]
    assert [one["reasoning_content"] for one in sent if one["role"] == "assistant"] == ["Step 0", ""]


@pytest.mark.parametrize(
    ("provider", "handler"),
    [("gemini", gemini), ("deepseek", deepseek), ("moonshot", deepseek), ("mistral", mistral)],
)
def test_a_conversation_of_another_model_continues_at_a_strict_provider(
    server: ChatServer, provider: str, handler: Any
) -> None:
    name = server.on("elsewhere-first", in_turn(chat_reply("", ("x", "add", '{"a": 1, "b": 1}')), chat_reply("2")))
    session = Session()
    asyncio.run(Agent(OpenAIModel(name, base_url=server.url), tools=[add]).run("1+1?", session=session))
    there = model(f"{provider}:{server.on('then', handler)}", base_url=server.url, max_retries=0)
    asyncio.run(Agent(there, tools=[add]).run("2+3?", session=session))
    assert ask(there, composed("Sure?", conversation=session.conversation)).message


def test_a_key_of_another_provider_is_not_sent(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    name = server.on("own-key", chat_reply("Hi"))
    ask(model(f"gemini:{name}", base_url=server.url))
    assert server.to(name)[-1].headers["authorization"] == "Bearer no-key"


def test_gemini_receives_tools_in_its_form(server: ChatServer) -> None:
    called: list[dict[str, Any]] = []

    async def find(**arguments: Any) -> str:
        called.append(arguments)
        return "found"

    parameters = {
        "type": "object",
        "properties": {"$top": {"type": ["integer", "null"], "default": 5}, "unit": {"const": "C"}},
        "additionalProperties": False,
    }
    bare = Tool.from_json_schema("now", "The time.", None, find)

    def answer(asked: Any) -> Any:
        if asked.body["messages"][-1]["role"] == "tool":
            return chat_reply("Found.")(asked)
        top = next(iter(asked.body["tools"][0]["function"]["parameters"]["properties"]))
        return chat_reply("", ("t1", "find", json.dumps({top: 3, "unit": "C"})))(asked)

    name = server.on("gemini-tools", answer)
    made = model(f"gemini:{name}", base_url=server.url, max_retries=0)
    tools = [Tool.from_json_schema("find", "", parameters, find), bare]
    agent = Agent(made, tools=tools)
    assert agent.run_sync("?").output == "Found."
    assert called == [{"$top": 3, "unit": "C"}]
    first, second = [entry["function"] for entry in server.to(name)[-1].body["tools"]]
    assert first == tools[0].to_gemini()
    assert not [word for word in ("additionalProperties", "const", "$top") if word in json.dumps(first["parameters"])]
    assert "parameters" not in second
    by_host: Any = OpenAIModel("gemini-3-pro", base_url="https://generativelanguage.googleapis.com/v1beta/openai")
    assert by_host.request_body(composed(tools=[tools[0].spec]))["tools"][0]["function"] == first
