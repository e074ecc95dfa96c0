"""A key, a password in an address or a query is in no text, chain or pickle of a model or an embedder."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agentkit import Agent, AnthropicModel, ModelError, ModelSettings, OpenAIModel
from agentkit import model as named_model
from agentkit.errors import AgentDefinitionError
from agentkit.memory import EmbedderError, Memory, OpenAIEmbedder, StoreError
from agentkit.prompts import ContextError, PromptContext
from agentkit.tools import MCPToolset, ToolDefinitionError, ToolError
from tests.cases import collected
from tests.models.asking import failure, model_for
from tests.raising import raises
from tests.servers import ChatServer, sends

KEY = 'sk-very"secret/0123456789'
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def everything(error: BaseException) -> Iterator[str]:
    """Yield all text of an error and of its causes, shown or hidden."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield from (str(each), repr(each), repr(each.args), repr(vars(each)))
            request: Any = getattr(each, "request", None)
            yield from () if request is None else request.headers.values()
            todo += [each.__cause__, each.__context__]
    yield "".join(traceback.format_exception(error))
    yield repr(pickle.dumps(error))


def test_a_key_that_an_endpoint_repeats_is_in_no_error_or_cause(server: ChatServer) -> None:
    failures: list[str] = []
    forms = [KEY, quote(KEY, safe=""), "x" * 495 + KEY]  # plain, quoted, at the cut
    for form, status, stream in itertools.product(forms, (200, 400, 401, 404, 429, 500), (False, True)):
        for body in ({"error": {"message": f"Incorrect: {form}."}}, {"detail": [{"input": form}]}, f"<html>{form}"):
            with collected(failures, form, status, stream, body):
                model = model_for(server, server.on("repeats", sends(body, status)), api_key=KEY)
                error = failure(model, stream=stream)
                assert isinstance(error, ModelError)
                for text in everything(error):
                    for secret in (KEY, json.dumps(KEY)[1:-1], quote(KEY, safe="")):
                        assert secret not in text
    assert failures == []


def test_the_error_of_an_unavailable_endpoint_does_not_contain_the_key() -> None:
    error = failure(OpenAIModel("m", base_url="http://127.0.0.1:9/v1", api_key=KEY, max_retries=0))
    assert not any(KEY in text for text in everything(error))


@pytest.mark.parametrize("tail", ["?key=hunter2", "/v1?key=hunter2", "/v1#hunter2", "#hunter2", "/v1?a=b#hunter2"])
def test_an_address_with_a_query_or_a_fragment_is_refused_without_showing_it(
    tail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://me:hunter2@localhost:1{tail}"
    with raises(ModelError, name="base_url") as caught:
        OpenAIModel("m", base_url=url)
    assert not any("hunter2" in text for text in everything(caught.value))
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://localhost:1{tail}")
    model = OpenAIModel("m", api_key=KEY)
    assert "hunter2" not in repr(model) + model.host
    assert not any("hunter2" in text for text in everything(failure(model)))
    embedder = OpenAIEmbedder("m", api_key=KEY)
    with pytest.raises(EmbedderError) as refused:
        embedder.embed(["a"])
    assert not any("hunter2" in text for text in everything(refused.value))


async def test_the_password_of_an_address_is_sent_and_not_logged(
    server: ChatServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    url = server.url.replace("://", "://me:hunter2%20@")
    for model in (OpenAIModel("m", base_url=url), AnthropicModel("m", base_url=url)):
        with suppress(ModelError):
            await Agent(model, "Be brief.").run("Hello")
    with pytest.raises(EmbedderError):
        OpenAIEmbedder("m", base_url=url).embed(["a"])
    with pytest.raises(ToolError):
        async with MCPToolset(url):
            pass
    assert "HTTP Request" in caplog.text and "hunter2" not in caplog.text


def test_a_model_with_a_key_is_not_pickled_and_a_model_without_a_key_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for model in (OpenAIModel("m", api_key=KEY), OpenAIModel("m", base_url="http://me:hunter2@localhost/v1")):
        for act in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError) as caught:
                act(model)
            assert not any(secret in str(caught.value) for secret in (KEY, "hunter2"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    stored = pickle.dumps(OpenAIModel("m"))
    assert KEY.encode() not in stored
    assert pickle.loads(stored).name == "m"


def test_the_error_of_an_embedder_does_not_contain_the_key(server: ChatServer) -> None:
    embedder = OpenAIEmbedder("m", base_url=server.url, api_key=KEY, max_retries=0)  # this path does not exist there
    with pytest.raises(EmbedderError) as caught:
        embedder.embed(["a"])
    assert not any(KEY in text for text in everything(caught.value))


@pytest.mark.parametrize(
    "url", ["postgresql://u:hunter2@127.0.0.1:9/db", "postgresql://127.0.0.1:9/db?password=hunter2"]
)
def test_a_database_address_shows_no_password(url: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError) as caught:
        Memory(url, index="index", timeout=1)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(StoreError) as other:
        Memory(url.replace("postgresql", "mysql"), index="index")
    assert "hunter2" not in "".join(traceback.format_exception(other.value))


def test_an_empty_session_key_is_refused_and_a_key_is_not_shown() -> None:
    with pytest.raises(ContextError) as caught:
        PromptContext(user_input="x", session_key="")
    context = PromptContext(user_input="x", session_key="hunter2")
    with pytest.raises(ContextError) as again:
        context.evolve(session_key="")
    assert [place for error in (caught, again) for place, _ in error.value.problems] == ["session_key"] * 2
    assert "hunter2" not in repr(context)


NO_ADDRESSES = [
    "sk-hunter2",
    "sk-hunter2://host/v1",
    "http:/sk-hunter2",
    "http://host:sk-hunter2/v1",
    "http://[sk-hunter2",
]


@pytest.mark.parametrize("text", [*NO_ADDRESSES, " sk-hunter2", "x@sk-hunter2", "skhunter2://sk-hunter2"])
def test_a_value_instead_of_an_address_is_not_shown(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makers: list[Callable[[], object]] = [
        lambda: OpenAIModel("m", base_url=text),
        lambda: AnthropicModel("m", base_url=text),
        lambda: OpenAIEmbedder("m", base_url=text).embed(["a"]),
        lambda: MCPToolset(text),
    ]
    if ":" in text:
        makers += [lambda: Memory(text), lambda: Memory(text, index=str(tmp_path))]
        makers += [lambda: Memory(tmp_path, index=text)] if "http" not in text else []
    monkeypatch.chdir(tmp_path)
    for make in makers:
        with pytest.raises((ModelError, EmbedderError, StoreError, ToolDefinitionError)) as caught:
            make()
        assert not any("hunter2" in one for one in everything(caught.value))
    assert not [one for one in tmp_path.rglob("*") if "hunter2" in one.name]
    monkeypatch.setenv("OPENAI_BASE_URL", text)
    model = OpenAIModel("m", api_key=KEY)
    assert "sk-hunter2" not in repr(model) or text.startswith("skhunter2")  # here it is the host
    assert not any("sk-hunter2" in one for one in everything(failure(model)))


@pytest.mark.parametrize(
    "name",
    [
        " http://h/v1?key=hunter2#m",
        "ftp://me:hunter2@h#m",
        "ftp://h/v1#hunter2",
        "//h?hunter2",
        "openai://u:hunter2@h",
        "anthropic:http://u:hunter2@h",
    ],
)
def test_an_address_instead_of_the_name_of_a_model_is_not_shown(name: str) -> None:
    given: list[dict[str, Any]] = [{}, {"chat_template": "llama3_1"}, {"session_len": 5}]
    for options in given:
        with pytest.raises(AgentDefinitionError) as caught:
            named_model(name, **options)
        assert not any("hunter2" in text for text in everything(caught.value))


def test_the_scheme_of_an_address_may_be_written_in_capitals() -> None:
    assert named_model("HTTP://me:hunter2@h/v1#m").name == "m"


SECRETS: list[dict[str, Any]] = [
    {"headers": {"X-Anything": "hunter2-hunter2"}},
    {"extra": {"api_key": "hunter2-hunter2"}},
    {"extra": {"provider": [{"accessToken": "hunter2-hunter2"}]}},
    {"extra": {"Authorization": {"value": "Bearer hunter2-hunter2"}}},
    {"extra": {"client-secret": ["hunter2-hunter2"]}},
    {"extra": {"APIKey": "hunter2-hunter2", "top": 1}},
    {"extra": {"set_cookie": "hunter2-hunter2"}},
    {"extra": {"user": ["Bearer hunter2-hunter2"]}},
    {"extra": {"a": {"b": "https://me:hunter2-hunter2@host/v1"}}},
    {"extra": {"webhook": "https://host/v1?sig=hunter2-hunter2"}},
    {"extra": {"callback": "https://host/v1#hunter2-hunter2"}},
]
LIKE_KEYS = [
    *("sk-proj-abc", "gsk_9aB3", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "xoxb-123", "AKIAIOSFODNN7EXAMPLE"),
    *("eyJhbGciOiJIUzI1NiJ9.eyJz", "AIzaSyD-9tSrke72PouQMnMX", "-----BEGIN RSA PRIVATE KEY-----", "postgres://u@h/x"),
    *("4bf92f3577b34da6a3ce929d0e0e4736", "it is 9f86d081884c7d659a2f, keep it", "dGhpcyBpcyBhIHNlY3JldCBrZXkg="),
]
LIKE_WORDS = [
    *("users", "gpt-5-mini", "claude-sonnet-4-20250514", "accounts/fireworks/models/llama-v3p1-70b-instruct"),
    *("deepseek/deepseek-r1-distill-llama-70b", "Qwen/Qwen2.5-Coder-32B-Instruct-AWQ", "https://example.org/a/b"),
    *("basic understanding of it", "2025-01-01T00:00:00Z", "<|im_end|>", "OpenaiResponsesApiBaseModel", "risk-averse"),
]


@pytest.mark.parametrize("options", SECRETS, ids=repr)
def test_a_secret_in_settings_is_not_shown_not_pickled_and_removed_from_errors(
    options: dict[str, Any], server: ChatServer
) -> None:
    settings = ModelSettings(temperature=0, **options)
    assert "hunter2" not in repr(settings) and "temperature=0" in repr(settings)
    model = model_for(server, server.on("repeats", sends({"error": {"message": "no hunter2-hunter2"}}, 400)))
    model = model.with_settings(settings)
    for thing in (settings, model):
        with pytest.raises(TypeError) as caught:
            pickle.dumps(thing)
        assert "hunter2" not in str(caught.value)
    assert copy.deepcopy(settings) is settings
    assert not any("hunter2-hunter2" in text for text in everything(failure(model)))


def test_a_text_that_looks_like_a_key_is_a_secret_under_any_name() -> None:
    assert [text for text in LIKE_KEYS if ModelSettings(extra={"note": [text]}).secrets[:1] != (text,)] == []
    assert [text for text in LIKE_KEYS if text in repr(ModelSettings(extra={"note": [text]}))] == []
    assert ModelSettings(extra={"note": LIKE_WORDS}).secrets == ()


def test_a_header_instead_of_its_name_is_not_shown() -> None:
    with raises(AgentDefinitionError, name="headers") as caught:
        ModelSettings(headers={"Authorization: Bearer hunter2": "", "X-Fine": "a"})
    assert "hunter2" not in str(caught.value)


def test_settings_without_a_secret_are_shown_and_pickled() -> None:
    settings = ModelSettings(
        stop=["a"], extra={"prompt_cache_key": "users", "stop_token_ids": [1], "max_tokens": 5, "author": {"top_k": 3}}
    )
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert "'users'" in repr(settings) and "[1]" in repr(settings) and "***" not in repr(settings)
    assert settings.secrets == ()
