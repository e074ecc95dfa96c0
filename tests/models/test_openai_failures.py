"""The OpenAI adapter with errors of the endpoint, the connection, the key or the address."""

from __future__ import annotations

import traceback
from itertools import chain, repeat

import pytest

from agentkit import OpenAIModel
from agentkit.models import (
    ModelAuthError,
    ModelInterrupted,
    ModelRateLimited,
    ModelRequestError,
    ModelUnavailable,
)
from tests.cases import collected
from tests.models.asking import KEY, NOTHING_LEFT_OPEN, ask, both, composed, failure, model_for
from tests.raising import raises
from tests.servers import ChatServer, chat_reply, chunk, hangs, in_turn, sends, streams
from tests.waiting import longer, reserved_port

pytestmark = NOTHING_LEFT_OPEN

YEARS = 365 * 24 * 3600
PAUSES = {
    "5": (5, 5),
    "-1": None,
    "nan": None,
    "1e400": None,
    "5, 5": None,
    "soon": None,
    "Mon, 01 Jan 2125 00:00:00 GMT": (50 * YEARS, 150 * YEARS),
    "Mon Jan  1 00:00:00 2125": (50 * YEARS, 150 * YEARS),
    "Mon, 01 Jan 2125 00:00:00 -0000": (50 * YEARS, 150 * YEARS),
    "Mon, 01 Jan 2001 00:00:00 GMT": (0, 0),
    "Mon, 01 Jan 99999999999999999999 00:00:00 GMT": None,
    "Mon, 01 Jan 2125 00:00:00 +99999999999999": None,
}
"""Minimum and maximum seconds of a pause, by its header; None for a header that is ignored."""

# Errors


async def test_a_pause_of_any_form_is_read_or_ignored(server: ChatServer) -> None:
    failures: list[str] = []
    answers = [sends({"error": {"message": "no"}}, 429, headers={"retry-after": header}) for header in PAUSES]
    model = model_for(server, server.on("wait", in_turn(*answers)))
    for header, expected in PAUSES.items():
        with pytest.raises(ModelRateLimited) as caught:
            await model.request(composed())
        with collected(failures, header):
            pause = caught.value.retry_after
            assert (pause is None) == (expected is None)
            assert expected is None or expected[0] <= (pause or 0) <= expected[1]
    await model.aclose()
    assert failures == []


@pytest.mark.parametrize("status", [429, 503])
def test_a_long_pause_is_left_to_the_caller(server: ChatServer, status: int) -> None:
    name = server.on(f"later-{status}", sends({"error": {"message": "no"}}, status, headers={"retry-after": "3600"}))
    assert failure(model_for(server, name, max_retries=3)).retry_after == 3600
    assert len(server.to(name)) == 1


@pytest.mark.parametrize("code", ["0400" + "9" * 5_000, "9" * 5_000, "4000", "\u0664\u0660\u0660"])
def test_a_code_that_is_not_a_status_is_a_failure_of_the_server(server: ChatServer, code: str) -> None:
    error = failure(model_for(server, server.on("code", sends({"error": {"code": code, "message": "no"}}))))
    assert (type(error), error.status) == (ModelUnavailable, 500)


@pytest.mark.parametrize("to", ["http://127.0.0.1:99999/", "http://[::1", "ftp://x/y", "/v1/chat/completions", ""])
def test_a_redirect_to_nowhere_is_a_failed_connection(server: ChatServer, to: str) -> None:
    name = server.on("moved", sends({}, 307, headers={"location": to}))
    assert isinstance(failure(model_for(server, name)), ModelUnavailable)


def test_another_host_receives_neither_key_nor_headers_after_a_redirect(server: ChatServer) -> None:
    """A redirect to the same host keeps both."""
    secret = {"x-tenant-key": "a-second-secret"}
    with ChatServer().run() as other:
        name = other.on("moved-away", chat_reply("Hello."))
        server.on(name, sends({}, 307, headers={"location": f"{other.url}/chat/completions"}))
        assert ask(model_for(server, name, api_key=KEY, headers=secret)).message.text == "Hello."
        first, second = server.to(name)[0], other.to(name)[0]
    assert (first.headers["authorization"], first.headers["x-tenant-key"]) == (f"Bearer {KEY}", "a-second-secret")
    assert not {KEY, f"Bearer {KEY}", "a-second-secret"} & set(second.headers.values())
    again = sends({}, 307, headers={"location": f"{server.url}/chat/completions"})
    server.on(name, in_turn(again, chat_reply("Hello.")))
    ask(model_for(server, name, api_key=KEY, headers=secret))
    assert server.to(name)[-1].headers["x-tenant-key"] == "a-second-secret"


@pytest.mark.parametrize("status", [429, 500])
@both
def test_max_retries_counts_the_further_attempts(server: ChatServer, status: int, stream: bool) -> None:
    fails = sends({"error": {"message": "no"}}, status, headers={"retry-after-ms": "1"})
    name = server.on(f"flaky-{status}-{stream}", in_turn(fails, fails, chat_reply("At last.")))
    heard: list[str] = []
    reply = ask(model_for(server, name, max_retries=2), on_text=heard.append if stream else None)
    assert reply.message.text == "At last."
    assert len(server.to(name)) == 3
    assert "".join(heard) == ("At last." if stream else "")

    name = server.on(f"broken-{status}-{stream}", fails)
    failure(model_for(server, name, max_retries=1), stream=stream)
    assert len(server.to(name)) == 2


@pytest.mark.parametrize("status", [400, 401])
def test_permanent_errors_are_not_retried(server: ChatServer, status: int) -> None:
    name = server.on(f"final-{status}", sends({"error": {"message": "no"}}, status))
    failure(model_for(server, name, max_retries=3))
    assert len(server.to(name)) == 1


@pytest.mark.parametrize(
    "cut", [b'40\r\ndata: {"choices":[{"index":0,"delta":{"content":" wor', b""], ids=["in a chunk", "between"]
)
def test_an_interrupted_stream_keeps_the_text_so_far(server: ChatServer, cut: bytes) -> None:
    name = server.on("cut", streams(chunk(content="Hello,"), cut=cut))
    asked = len(server.to(name))
    heard: list[str] = []
    with pytest.raises(ModelInterrupted) as caught:
        ask(model_for(server, name, max_retries=3), on_text=heard.append)
    assert caught.value.text == "".join(heard) == "Hello,"
    assert server.host in str(caught.value)
    assert len(server.to(name)) == asked + 1  # a stream that started is never retried


def test_a_stream_that_ends_without_a_finish_reason_was_interrupted(server: ChatServer) -> None:
    name = server.on("unfinished", streams(chunk(content="Half"), done=False))
    error = failure(model_for(server, name), stream=True)
    assert isinstance(error, ModelInterrupted)
    assert error.text == "Half"


def test_a_partial_tool_call_never_reaches_the_caller(server: ChatServer) -> None:
    half = {"index": 0, "id": "1", "type": "function", "function": {"name": "pay", "arguments": '{"amount": 1'}}
    name = server.on("half-call", streams(chunk(tool_calls=[half]), cut=b"ff\r\n"))
    assert isinstance(failure(model_for(server, name), stream=True), ModelInterrupted)


def test_a_missing_answer_is_a_timeout(server: ChatServer) -> None:
    error = failure(model_for(server, server.on("slow", hangs(60)), timeout=0.2))
    assert isinstance(error, ModelUnavailable)
    assert "no response in time" in str(error)


def test_a_stream_that_stalls_is_interrupted(server: ChatServer) -> None:
    late = server.on("stalls", streams(chunk(content="a"), pause=60))
    assert isinstance(failure(model_for(server, late, timeout=0.2), stream=True), ModelUnavailable)
    begun = server.on("begun", streams(lambda: chain([chunk(content="a")], repeat(b": ping\n\n")), pause=0.02))
    for seconds in longer(0.3):
        error = failure(model_for(server, begun, timeout=seconds), stream=True)
        if isinstance(error, ModelInterrupted):  # the stream had started
            break
    assert error.text == "a"


@pytest.mark.parametrize(
    ("passed", "variable", "hint"),
    [
        ("http://HOST/v1", "", "base_url ends where /chat/completions begins"),
        ("http://me:hunter2@HOST", "", "base_url ends where /chat/completions begins, such as http://HOST/v1"),
        ("http://HOST/", "", "base_url ends where /chat/completions begins, such as http://HOST/v1"),
        (None, "http://HOST/v1", "base_url (OPENAI_BASE_URL) ends where /chat/completions begins"),
        (
            *(None, "http://HOST"),
            "base_url (OPENAI_BASE_URL) ends where /chat/completions begins, such as http://HOST/v1",
        ),
    ],
)
def test_an_address_without_a_server_is_reported_with_its_origin(
    monkeypatch: pytest.MonkeyPatch, passed: str | None, variable: str, hint: str
) -> None:
    with reserved_port() as port:
        host = f"127.0.0.1:{port}"
        monkeypatch.setenv("OPENAI_BASE_URL", variable.replace("HOST", host))
        error = failure(OpenAIModel("m", base_url=passed and passed.replace("HOST", host), max_retries=0))
    assert isinstance(error, ModelUnavailable)
    assert str(error).startswith(f"m at {host}: no connection")
    assert str(error).endswith(f"is the server running? Check that {hint.replace('HOST', host)}")


# Keys and addresses


def test_a_missing_key_names_the_variables_before_any_request() -> None:
    with raises(ModelAuthError, name="OPENAI_API_KEY"):
        ask(OpenAIModel("gpt"))


def test_a_composition_can_be_created_without_a_key() -> None:
    assert OpenAIModel("gpt").name == "gpt"


def test_a_base_url_needs_no_key(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    name = server.on("keyless", chat_reply("Hi"))
    assert ask(OpenAIModel(name)).message.text == "Hi"
    assert server.to(name)[-1].headers["authorization"] == "Bearer no-key"


def test_the_key_of_the_environment_is_sent(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    name = server.on("keyed", chat_reply("Hi"))
    ask(model_for(server, name))
    assert server.to(name)[-1].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", ["sk-with\na-line-break", "sk-\u201cquoted\u201d", "two words"])
def test_a_key_that_no_header_can_contain_is_refused_without_being_shown(server: ChatServer, key: str) -> None:
    error = failure(model_for(server, "m", api_key=key))
    assert isinstance(error, ModelAuthError)
    assert key not in str(error)


@both
def test_the_key_is_never_in_an_error(server: ChatServer, stream: bool) -> None:
    name = server.on("echoes", sends({"error": {"message": f"Incorrect API key provided: {KEY}."}}, 401))
    model = model_for(server, name, api_key=KEY)
    error = failure(model, stream=stream)
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(model)
    assert KEY not in shown
    assert "OPENAI_API_KEY" in str(error)


def test_a_password_in_the_address_is_never_shown(server: ChatServer) -> None:
    url = server.url.replace("http://", "http://user:hunter2@")
    error = failure(OpenAIModel(server.on("userinfo", sends({}, 500)), base_url=url, max_retries=0))
    assert "hunter2" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "url", ["localhost:8000/v1", "", " ", "ftp://x/v1", "http://", "http://[::1/v1", "http://me:secret@h:x/"]
)
def test_an_invalid_address_is_refused_at_construction(url: str) -> None:
    with raises(ModelRequestError, name="base_url") as caught:
        OpenAIModel("m", base_url=url)
    assert "secret" not in str(caught.value)


def test_an_invalid_address_in_the_environment_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000")
    with raises(ModelRequestError, name="OPENAI_BASE_URL"):
        ask(OpenAIModel("m"))
