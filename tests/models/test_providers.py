"""Providers by name: each row against a server that answers in the form of its documentation."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import re
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from agentkit import (
    Agent,
    AnthropicModel,
    Event,
    ModelError,
    ModelSettings,
    OpenAIModel,
    OpenAIResponsesModel,
    ThinkingDelta,
    Usage,
    model,
    tool,
)
from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.models import ModelAuthError, ModelRateLimited, ModelRequestError, ModelUnavailable, Price
from agentkit.models.providers import PROVIDERS, provider_at
from agentkit.prompts import Document, Layers, MemoPrompt, PromptContext, compose
from tests.conftest import ENDPOINT_ENDINGS, ENDPOINT_VARIABLES
from tests.models.asking import KEY, NOTHING_LEFT_OPEN, ask, failure
from tests.models.wire_forms import WIRES, wire_reply
from tests.paths import ROOT
from tests.raising import raises
from tests.servers import Asked, ChatServer, calls, chat_reply, chunk, completion, sends, streams

pytestmark = NOTHING_LEFT_OPEN
COMPATIBLE = [row for row in PROVIDERS.values() if not row.model]
FIXED = {
    "GOOGLE_CLOUD_PROJECT": "shop-1",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AZURE_OPENAI_ENDPOINT": "https://shop.openai.azure.com/",
}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_no_variable_of_a_provider_reaches_a_test() -> None:
    for row in PROVIDERS.values():
        for variable in (*row.keys, *row.addresses, *(name for part in row.parts for name in part.variables)):
            is_removed = variable in ENDPOINT_VARIABLES or variable.endswith(ENDPOINT_ENDINGS)
            assert is_removed, (
                f"add {variable!r} to ENDPOINT_VARIABLES in tests/conftest.py: a test could reach a model"
            )


class Answers(NamedTuple):
    """The forms in which a provider answers."""

    thought: Mapping[str, Any]
    """Fields of a message with thinking, whose text is `Hm.`; empty if the endpoint sends none."""
    usage: Mapping[str, Any]
    read: Usage
    status: int
    error: Any
    error_class: type[ModelError]
    settings: Mapping[str, Any]
    body: Mapping[str, Any]
    """Fields of the request that the settings determine."""


def openai_error(message: str, kind: str, code: Any = None) -> Any:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


CONTENT = {"reasoning_content": "Hm."}
REASONING = {"reasoning": "Hm."}
DETAILS = {"reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "format": "unknown", "index": 0}]}
PLAIN = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
CACHED = {**PLAIN, "prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 2}}
ALL = Usage(12, 5, 8, reasoning_tokens=2)
FEW = Usage(12, 5)
CASES = {
    "ollama": Answers(
        REASONING, PLAIN, FEW, 404, openai_error("model 'm' not found", "not_found_error"), ModelRequestError,
        {"seed": 1, "effort": "none", "max_tokens": 9}, {"seed": 1, "reasoning_effort": "none", "max_tokens": 9},
    ),
    "vllm": Answers(
        REASONING, {**PLAIN, "prompt_tokens_details": None}, FEW, 400,
        {"object": "error", "message": "too long", "type": "BadRequestError", "param": None, "code": 400},
        ModelRequestError,
        {"top_k": 5, "thinking_tokens": 64}, {"top_k": 5, "thinking_token_budget": 64},
    ),
    "llamacpp": Answers(
        CONTENT, PLAIN, FEW, 503,
        {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, ModelUnavailable,
        {"effort": "none", "top_k": 5}, {"chat_template_kwargs": {"enable_thinking": False}, "top_k": 5},
    ),
    "lmstudio": Answers(
        CONTENT, PLAIN, FEW, 400, {"error": "No models loaded."}, ModelRequestError,
        {"tool_choice": "required", "top_k": 5}, {"tool_choice": "required", "top_k": 5},
    ),
    "openrouter": Answers(
        {**REASONING, **DETAILS}, {**CACHED, "cost": 0.01}, ALL, 402,
        {"error": {"code": 402, "message": "Insufficient credits"}, "user_id": "u"}, ModelRequestError,
        {"thinking_tokens": 64}, {"reasoning": {"max_tokens": 64}},
    ),
    "azure": Answers(
        {}, CACHED, ALL, 429,
        {"error": {"code": "429", "message": "Requests have exceeded the rate limit"}}, ModelRateLimited,
        {"max_tokens": 9, "effort": "low"}, {"max_completion_tokens": 9, "reasoning_effort": "low"},
    ),
    "bedrock": Answers(
        {}, PLAIN, FEW, 401, openai_error("Invalid API Key", "authentication_error"), ModelAuthError,
        {"max_tokens": 9, "stop": "x"}, {"max_completion_tokens": 9, "stop": "x"},
    ),
    "vertex": Answers(
        {"extra_content": {"google": {"thought": True}}}, CACHED, ALL, 403,
        [{"error": {"code": 403, "message": "Permission denied", "status": "PERMISSION_DENIED"}}], ModelAuthError,
        {"thinking_tokens": 64, "seed": 3},
        {"extra_body": {"google": {"thinking_config": {"thinking_budget": 64}}}, "seed": 3},
    ),
    "gemini": Answers(
        {}, CACHED, ALL, 400,
        [{"error": {"code": 400, "message": "Invalid", "status": "INVALID_ARGUMENT"}}], ModelRequestError,
        {"thinking_tokens": 0}, {"extra_body": {"google": {"thinking_config": {"thinking_budget": 0}}}},
    ),
    "deepseek": Answers(
        CONTENT, {**PLAIN, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 4}, Usage(12, 5, 8), 402,
        openai_error("Insufficient Balance", "unknown_error", "invalid_request_error"), ModelRequestError,
        {"effort": "none"}, {"thinking": {"type": "disabled"}},
    ),
    "groq": Answers(
        REASONING, {**PLAIN, "queue_time": 0.1}, FEW, 400,
        {"error": {"message": "Failed to call a function", "type": "invalid_request_error",
                   "code": "tool_use_failed", "failed_generation": "<function"}}, ModelRequestError,
        {"max_tokens": 9, "effort": "low"}, {"max_completion_tokens": 9, "reasoning_effort": "low"},
    ),
    "mistral": Answers(
        {}, PLAIN, FEW, 422,
        {"object": "error", "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "x"]}]},
         "type": "invalid_request_error", "code": "1200"}, ModelRequestError,
        {"seed": 3, "effort": "high"}, {"random_seed": 3, "reasoning_effort": "high"},
    ),
    "xai": Answers(
        CONTENT, CACHED, ALL, 400, {"code": "Client specified an invalid argument", "error": "Incorrect API key"},
        ModelRequestError,
        {"max_tokens": 9, "seed": 1}, {"max_completion_tokens": 9, "seed": 1},
    ),
    "together": Answers(
        REASONING, {**PLAIN, "cached_tokens": 8}, Usage(12, 5, 8), 429,
        openai_error("Rate limit", "rate_limit", "rate_limit_exceeded"), ModelRateLimited,
        {"effort": "none", "top_k": 5}, {"reasoning": {"enabled": False}, "top_k": 5},
    ),
    "fireworks": Answers(
        CONTENT, CACHED, ALL, 404,
        {"error": {"object": "error", "type": "invalid_request_error", "message": "Model not found"}},
        ModelRequestError,
        {"top_k": 5, "prompt_cache_key": "k"}, {"top_k": 5, "prompt_cache_key": "k"},
    ),
    "cerebras": Answers(
        REASONING, CACHED, ALL, 429,
        {"message": "Requests per minute limit exceeded", "type": "too_many_requests_error", "param": "quota",
         "code": "request_quota_exceeded"}, ModelRateLimited,
        {"max_tokens": 9, "seed": 1}, {"max_completion_tokens": 9, "seed": 1},
    ),
    "moonshot": Answers(
        CONTENT, {**PLAIN, "cached_tokens": 8}, Usage(12, 5, 8), 401,
        {"error": {"message": "Invalid Authentication", "type": "invalid_authentication_error"}}, ModelAuthError,
        {"effort": "none", "max_tokens": 9}, {"thinking": {"type": "disabled"}, "max_completion_tokens": 9},
    ),
    "zai": Answers(
        CONTENT, CACHED, ALL, 429, {"error": {"code": "1302", "message": "Rate limit reached"}}, ModelRateLimited,
        {"stop": "x", "effort": "none"}, {"stop": ["x"], "thinking": {"type": "disabled"}},
    ),
    "dashscope": Answers(
        CONTENT, CACHED, ALL, 400,
        {"error": {"message": "Range of max_tokens", "type": "invalid_request_error", "param": None,
                   "code": "invalid_parameter_error"}, "request_id": "r"}, ModelRequestError,
        {"thinking_tokens": 64, "top_k": 5}, {"enable_thinking": True, "thinking_budget": 64, "top_k": 5},
    ),
    "minimax": Answers(
        DETAILS, CACHED, ALL, 200,
        {"choices": None, "base_resp": {"status_code": 1004, "status_msg": "login fail"}}, ModelAuthError,
        {"temperature": 1, "max_tokens": 9}, {"temperature": 1, "max_completion_tokens": 9, "reasoning_split": True},
    ),
    "huggingface": Answers(
        REASONING, PLAIN, FEW, 400,
        {"error": {"message": "not supported by any provider", "type": "invalid_request_error"}}, ModelRequestError,
        {"effort": "low", "seed": 1}, {"reasoning_effort": "low", "seed": 1},
    ),
    "litellm": Answers(
        {**CONTENT, "provider_specific_fields": {"x": 1}}, CACHED, ALL, 401,
        openai_error("Authentication Error", "auth_error", "401"), ModelAuthError,
        {"thinking_tokens": 64}, {"thinking": {"type": "enabled", "budget_tokens": 64}},
    ),
}  # fmt: skip


def answer(case: Answers) -> Any:
    """Return a handler: a call with thinking, then text; whole or streamed, depending on the request."""

    def handler(asked: Asked) -> Any:
        fields = dict(case.thought)
        is_last = any(message["role"] == "tool" for message in asked.body["messages"])
        if is_last:
            fields = {"content": "It is 5."}
        named = [] if is_last else calls(("D681PevKs", "add", '{"a":2,"b":3}'))
        reason = "stop" if is_last else "tool_calls"
        extra = {"base_resp": {"status_code": 0, "status_msg": ""}}
        if not asked.body.get("stream"):
            return sends({**completion(**{"content": None, **fields}, tool_calls=named, finish_reason=reason,
                                       usage=case.usage), **extra})(asked)  # fmt: skip
        pieces = [chunk(role="assistant", **fields)]
        pieces += [chunk(tool_calls=[{"index": 0, **call}]) for call in named]
        return streams(*pieces, chunk(reason), {**chunk(), "choices": [], "usage": case.usage})(asked)

    return handler


def test_each_provider_has_cases_and_rows_of_pages() -> None:
    names = {row.name for row in COMPATIBLE}
    assert names == set(CASES), "each provider has a case in CASES"
    assert names == {provider for provider, _ in REFUSED}, "each provider has a case in REFUSED"
    for page in ("docs/providers.md", "docs/model-settings.md"):
        rows = "".join(re.findall(r"^\| (.*?) \|", (ROOT / page).read_text("utf-8"), re.MULTILINE))
        assert [name for name in names if f"`{name}`" not in rows] == [], f"add the provider to the table in {page}"
    for row in PROVIDERS.values():
        assert row.name == "offline" or row.docs.startswith("https://")


def test_each_provider_receives_and_sends_its_form(server: ChatServer) -> None:
    async def problems(provider: str, case: Answers, *, is_streamed: bool) -> None:
        name = server.on(f"{provider}-{is_streamed}", answer(case))
        options: dict[str, Any] = {"base_url": server.url, "api_key": KEY, "max_retries": 0}
        asked_model: Any = model(f"{provider}:{name}", settings=ModelSettings(**case.settings), **options)
        shown: list[str] = []

        def on_event(event: Event) -> None:
            if isinstance(event, ThinkingDelta):
                shown.append(event.text)

        result = await Agent(asked_model, tools=[add]).run("2 + 3?", on_event=on_event if is_streamed else None)
        first, second = server.to(name)
        assert result.output == "It is 5."
        thinking = [thought.text for message in result.messages for thought in message.thinking]
        assert thinking == ["Hm."] * ("Hm." in str(case.thought)), (
            f"{thinking}: add the field of {case.thought} to THOUGHT_FIELDS in context/wire/thought_fields.py"
        )
        if is_streamed:
            assert shown == thinking
        assert {key: first.body.get(key) for key in case.body} == case.body
        assert first.headers["authorization"] == f"Bearer {KEY}"
        read = case.read
        doubled = Usage(
            2 * read.input_tokens,
            2 * read.output_tokens,
            2 * read.cached_tokens,
            reasoning_tokens=2 * read.reasoning_tokens,
        )
        assert result.usage == doubled
        replies = [message for message in second.body["messages"] if message["role"] == "assistant"]
        for key, value in case.thought.items():
            assert json.loads(json.dumps(replies[0][key])) == value
        assert ("stream_options" in first.body) == (is_streamed and PROVIDERS[provider].requests_usage)
        server.on(name, sends(case.error, case.status))
        with raises(case.error_class):
            await asked_model.request(compose(Layers("Hi."), PromptContext("x")))
        await asked_model.aclose()

    async def all_problems() -> list[str]:
        found = []
        for provider, case in CASES.items():
            for is_streamed in (False, True):
                try:
                    await problems(provider, case, is_streamed=is_streamed)
                except (AssertionError, ModelError, KeyError, ValueError) as error:
                    found.append(f"{provider}, streamed {is_streamed}: {type(error).__name__} {error}"[:600])
        return found

    assert asyncio.run(all_problems()) == []


# Addresses

ADDRESSES = [
    ("ollama", {}, "http://localhost:11434/v1"),
    ("ollama", {"OLLAMA_HOST": "gpu-box"}, "http://gpu-box:11434/v1"),
    ("ollama", {"OLLAMA_HOST": "gpu-box:80"}, "http://gpu-box:80/v1"),
    ("ollama", {"OLLAMA_HOST": "0.0.0.0"}, "http://127.0.0.1:11434/v1"),
    ("ollama", {"OLLAMA_HOST": "0.0.0.0:8080"}, "http://127.0.0.1:8080/v1"),
    ("ollama", {"OLLAMA_HOST": "http://0.0.0.0:8080"}, "http://127.0.0.1:8080/v1"),
    ("ollama", {"OLLAMA_HOST": ":8080"}, "http://127.0.0.1:8080/v1"),
    ("ollama", {"OLLAMA_HOST": " 'gpu-box' "}, "http://gpu-box:11434/v1"),
    ("ollama", {"OLLAMA_HOST": "http://gpu-box"}, "http://gpu-box/v1"),
    ("ollama", {"OLLAMA_HOST": "https://gpu-box/"}, "https://gpu-box/v1"),
    ("ollama", {"OLLAMA_HOST": "https://box/llm/v1/"}, "https://box/llm/v1"),
    ("ollama", {"OLLAMA_HOST": "box/llm"}, "http://box:11434/llm/v1"),
    ("ollama", {"OLLAMA_HOST": "::1"}, "http://[::1]:11434/v1"),
    ("ollama", {"OLLAMA_HOST": "::"}, "http://[::1]:11434/v1"),
    ("ollama", {"OLLAMA_HOST": "[::1]:99"}, "http://[::1]:99/v1"),
    ("ollama", {"OLLAMA_HOST": "ollama.com"}, "https://ollama.com/v1"),
    ("ollama", {"OLLAMA_BASE_URL": "http://a:1/v1", "OLLAMA_HOST": "b"}, "http://a:1/v1"),
    ("azure", {"AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com"}, "https://x.openai.azure.com/openai/v1"),
    ("azure", {"AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com/openai/v1/"},
     "https://x.openai.azure.com/openai/v1/"),
    ("azure", {"AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com/openai/deployments/d"},
     "https://x.openai.azure.com/openai/v1"),
    ("azure", {"AZURE_OPENAI_ENDPOINT": "https://x.services.ai.azure.com/api/projects/p"},
     "https://x.services.ai.azure.com/api/projects/p/openai/v1"),
    ("bedrock", {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "x"},
     "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1"),
    ("bedrock", {"AWS_REGION": " ", "AWS_DEFAULT_REGION": "eu-west-1"},
     "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1"),
    ("vertex", {"GOOGLE_CLOUD_PROJECT": "p"},
     "https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/openapi"),
    ("vertex", {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "us-east1"},
     "https://us-east1-aiplatform.googleapis.com/v1/projects/p/locations/us-east1/endpoints/openapi"),
    ("groq", {"GROQ_BASE_URL": "https://api.groq.com"}, "https://api.groq.com/openai/v1"),
    ("moonshot", {"MOONSHOT_BASE_URL": "https://api.moonshot.cn/v1"}, "https://api.moonshot.cn/v1"),
    ("litellm", {"LITELLM_PROXY_API_BASE": "http://box:4000"}, "http://box:4000"),
]  # fmt: skip


def test_the_environment_determines_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for provider, variables, address in ADDRESSES:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            made: Any = model(f"{provider}:m")
            if made.address != f"{address.rstrip('/')}/chat/completions":
                wrong.append((provider, variables, made.address))
    assert not wrong


@pytest.mark.parametrize(
    ("provider", "variable", "value"),
    [
        ("ollama", "OLLAMA_HOST", "box:port"),
        ("ollama", "OLLAMA_HOST", "http://[::1"),
        ("ollama", "OLLAMA_HOST", "ftp://box"),
        ("ollama", "OLLAMA_HOST", "box?key=hunter2"),
        ("azure", "AZURE_OPENAI_ENDPOINT", "x.openai.azure.com"),
        ("azure", "AZURE_OPENAI_ENDPOINT", "https://x.openai.azure.com/?api-version=1"),
        ("groq", "GROQ_BASE_URL", "gsk_hunter2"),
        ("bedrock", "AWS_REGION", "us-east-1/evil"),
        ("bedrock", "AWS_REGION", "evil.example/#"),
        ("vertex", "GOOGLE_CLOUD_PROJECT", "../p"),
    ],
)
def test_an_invalid_address_names_its_variable(
    provider: str, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    error = failure(model(f"{provider}:m", api_key=KEY))
    assert isinstance(error, ModelRequestError)
    assert error.name == variable
    assert variable in str(error)
    assert "hunter2" not in str(error)


# Keys


def test_a_missing_key_names_its_variables_before_any_request(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FIXED.items():
        monkeypatch.setenv(name, value)
    needing = [row for row in COMPATIBLE if row.requires_key(row.base_url())]
    assert len(needing) > 10
    for row in needing:
        with raises(ModelAuthError, name=row.keys[0]) as caught:
            ask(model(f"{row.name}:m"))
        assert all(variable in str(caught.value) for variable in row.keys)


def test_a_missing_address_and_a_missing_key_are_reported_together() -> None:
    for provider, variables in (
        ("azure", ("AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY")),
        ("bedrock", ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK")),
        ("vertex", ("GOOGLE_CLOUD_PROJECT", "GOOGLE_OAUTH_ACCESS_TOKEN")),
    ):
        error = failure(model(f"{provider}:m"))
        assert isinstance(error, ModelAuthError)
        assert all(variable in str(error) for variable in variables)
        with_key = failure(model(f"{provider}:m", api_key=KEY))
        assert isinstance(with_key, ModelRequestError)
        assert with_key.name == variables[0]


def test_the_first_variable_with_a_value_is_the_key(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    name = server.on("keys", chat_reply("Hi"))
    monkeypatch.setenv("GOOGLE_API_KEY", "of-google")
    ask(model(f"gemini:{name}", base_url=server.url))
    monkeypatch.setenv("GEMINI_API_KEY", "of-gemini")
    ask(model(f"gemini:{name}", base_url=server.url))
    ask(model(f"gemini:{name}", base_url=server.url, api_key="passed"))
    sent = [asked.headers["authorization"] for asked in server.to(name)]
    assert sent == ["Bearer of-google", "Bearer of-gemini", "Bearer passed"]


def test_a_function_returns_the_key_of_each_request(server: ChatServer) -> None:
    tokens = iter(["token-of-a-function-1", "token-of-a-function-2"])

    async def later() -> str:
        return next(tokens)

    name = server.on("tokens", chat_reply("Hi"))
    fresh = model(f"vertex:{name}", base_url=server.url, api_key=later)
    for _ in range(2):
        ask(fresh)
    ask(OpenAIModel(name, base_url=server.url, api_key=lambda: "of-a-thread"))
    sent = [asked.headers["authorization"] for asked in server.to(name)]
    assert sent == ["Bearer token-of-a-function-1", "Bearer token-of-a-function-2", "Bearer of-a-thread"]
    with pytest.raises(TypeError):
        pickle.dumps(fresh)


def test_a_function_replaces_the_only_key_of_a_request(server: ChatServer) -> None:
    for kind, wire in ((AnthropicModel, WIRES[2]), (OpenAIResponsesModel, WIRES[1])):
        name = server.on(f"function-{wire.name}", wire_reply(wire, "", "Hi"))
        url = server.url.removesuffix("/v1") if wire.name == "anthropic" else server.url
        sent = []
        for key in ("one-key-12345", lambda: "one-key-12345"):
            ask(kind(name, base_url=url, api_key=key))
            headers = server.to(name)[-1].headers
            sent.append({name: headers[name] for name in ("authorization", "x-api-key") if name in headers})
        assert sent[0] == sent[1]


def test_a_token_is_masked_in_errors(server: ChatServer) -> None:
    token = "ya29.a-token-of-google"
    name = server.on("echo", sends({"error": {"message": f"bad token {token}"}}, 401))
    error = failure(model(f"vertex:{name}", base_url=server.url, api_key=lambda: token))
    assert isinstance(error, ModelAuthError)
    assert token not in str(error)


def fails() -> str:
    raise OSError("no metadata server")


@pytest.mark.parametrize(
    "function", [fails, lambda: "", lambda: None, lambda: 5, lambda: "a b", lambda: next(iter(()))]
)
def test_a_function_without_a_key_is_an_error_before_any_request(server: ChatServer, function: Any) -> None:
    name = server.on("tokenless", chat_reply("Hi"))
    with raises(ModelAuthError, name="api_key"):
        ask(model(f"vertex:{name}", base_url=server.url, api_key=function))
    assert not server.to(name)


def test_a_function_that_hangs_does_not_keep_the_process_alive(server: ChatServer) -> None:
    end, has_ended = threading.Event(), threading.Event()

    def hangs() -> str:
        end.wait(30)
        has_ended.set()
        return KEY

    settings = ModelSettings(timeout=0.05)
    error = failure(
        model(
            f"vertex:{server.on('hung', chat_reply('Hi'))}",
            base_url=server.url,
            api_key=hangs,
            settings=settings,
            max_retries=0,
        )
    )
    # The event loop of the request is closed now.
    still_hung = not has_ended.is_set()
    end.set()
    assert has_ended.wait(30)
    assert isinstance(error, ModelUnavailable) and still_hung


@pytest.mark.parametrize("code", [[1004], {"code": 1004}, "1004", 1e308, True])
def test_a_status_of_any_type_is_an_error_of_the_server(server: ChatServer, code: Any) -> None:
    name = server.on("status", sends({"base_resp": {"status_code": code, "status_msg": {"why": 5}}}))
    assert isinstance(
        failure(model(f"minimax:{name}", base_url=server.url, api_key=KEY, max_retries=0)), ModelUnavailable
    )


# Options and settings


def test_a_model_by_name_accepts_the_options_of_its_class(server: ChatServer) -> None:
    name = server.on("options", chat_reply("Hi"))
    made = model(f"groq:{name}", base_url=server.url, price=Price(input=1, output=1), max_concurrency=2)
    assert Agent(made).run_sync("Hi").cost == pytest.approx(17 / 1_000_000)
    assert made.with_settings(ModelSettings(seed=1)).output_modes[0] == "tool"  # type: ignore[attr-defined]
    by_address = model(f"{server.url}#{name}", api_key=KEY)
    ask(by_address)
    assert server.to(name)[-1].headers["authorization"] == f"Bearer {KEY}"
    with raises(AgentDefinitionError, name="base_url"):
        model(f"{server.url}#{name}", base_url=server.url)
    with raises(AgentDefinitionError, name="api_key"):
        model("offline", api_key=KEY)
    with raises(UnknownOption, name="base_ur"):
        model("groq:m", base_ur=server.url)  # type: ignore[call-arg]


def test_a_model_by_name_is_copied_and_pickled_without_its_connections() -> None:
    for row in COMPATIBLE:
        made: Any = model(f"{row.name}:m", settings=ModelSettings(max_tokens=5))
        for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
            assert (other.name, other.provider, other.settings) == ("m", row, made.settings)


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("ollama", {"tool_choice": "required"}),
    ("ollama", {"top_k": 5}),
    ("vllm", {"service_tier": "x"}),
    ("llamacpp", {"effort": "xhigh"}),
    ("lmstudio", {"tool_choice": "add"}),
    ("openrouter", {"effort": "low", "thinking_tokens": 5}),
    ("azure", {"top_k": 5}),
    ("bedrock", {"seed": 5}),
    ("vertex", {"parallel_tool_calls": True}),
    ("vertex", {"effort": "low", "thinking_tokens": 5}),
    ("gemini", {"effort": "low", "thinking_tokens": 5}),
    ("gemini", {"seed": 5}),
    ("deepseek", {"seed": 5}),
    ("groq", {"top_k": 5}),
    ("groq", {"effort": "max"}),
    ("mistral", {"top_k": 5}),
    ("xai", {"effort": "max"}),
    ("together", {"parallel_tool_calls": True}),
    ("fireworks", {"thinking_tokens": 5}),
    ("cerebras", {"top_k": 5}),
    ("moonshot", {"tool_choice": "required"}),
    ("moonshot", {"effort": "medium"}),
    ("zai", {"tool_choice": "none"}),
    ("zai", {"stop": ["a", "b"]}),
    ("dashscope", {"effort": "high"}),
    ("dashscope", {"tool_choice": "required"}),
    ("minimax", {"temperature": 0}),
    ("minimax", {"stop": "x"}),
    ("huggingface", {"top_k": 5}),
    ("litellm", {"effort": "low", "thinking_tokens": 5}),
]


def test_a_setting_that_a_provider_does_not_support_is_an_error() -> None:
    accepted = []
    for provider, settings in REFUSED:
        try:
            model(f"{provider}:m", settings=ModelSettings(**settings))
        except AgentDefinitionError as error:
            assert error.name in settings
        else:
            accepted.append((provider, settings))
    assert not accepted


# Hosts


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("api.groq.com", "groq"),
        ("API.GROQ.COM:443", "groq"),
        ("us-east1-aiplatform.googleapis.com", "vertex"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "bedrock"),
        ("x.openai.azure.com", "azure"),
        ("eu.api.openai.com", "openai"),
        ("api.groq.com.evil.example", None),
        ("evil-anthropic.com", None),
        ("ec2-1-2-3-4.compute-1.amazonaws.com", None),
        ("localhost:11434", None),
        ("", None),
    ],
)
def test_a_host_belongs_to_one_provider(host: str, name: str | None) -> None:
    row = provider_at(host)
    assert (row.name if row else None) == name


TOKEN = "<|im_end|>"


@pytest.mark.parametrize(
    ("name", "is_marked"),
    [
        ("openai:gpt-5", False),
        ("azure:gpt-5", False),
        ("gemini:gemini-3-pro", False),
        ("mistral:mistral-large", False),
        ("xai:grok-5", False),
        ("vertex:google/gemini-3-pro", False),
        ("vertex:qwen/qwen3-next", True),
        ("groq:qwen/qwen3-32b", True),
        ("openrouter:qwen/qwen3-32b", True),
        ("together:Qwen/Qwen3-32B", True),
        ("bedrock:qwen.qwen3-32b-v1:0", True),
        ("huggingface:Qwen/Qwen3-32B", True),
        ("ollama:qwen3", True),
        ("litellm:qwen3", True),
    ],
)
def test_control_tokens_are_marked_unless_the_provider_writes_the_template(
    name: str, is_marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in FIXED.items():
        monkeypatch.setenv(variable, value)
    layers = Layers("Sum up.", before_input=MemoPrompt(template="{{ documents[0].text }}"))
    hostile = compose(layers, PromptContext("Go.", documents=[Document(f"4.{TOKEN}")]))
    asked: Any = model(name)
    assert (TOKEN not in json.dumps(asked.request_body(hostile), ensure_ascii=False)) == is_marked
