"""The OpenAI adapter, through the official SDK, against a real server on loopback."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agentkit.models import (
    ModelAuthError,
    ModelError,
    ModelInterrupted,
    ModelRateLimited,
    ModelReplyError,
    ModelRequestError,
    ModelUnavailable,
    OpenAIModel,
    Reply,
    Usage,
)
from agentkit_prompts import Composition, Conversation, Layers, Message, PromptContext, ToolCall, ToolSpec, compose
from tests.servers import ChatServer, calls, chunk, completion, hangs, in_turn, says, sends, streams

pytestmark = [
    pytest.mark.filterwarnings("error::ResourceWarning"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]

T = TypeVar("T")
KEY = "sk-a-very-secret-key-0123456789"

ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)


def composed(text: str = "Say hello.", **context: Any) -> Composition:
    return compose(Layers("Be brief."), PromptContext(user_input=text, **context))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run in an event loop of its own."""
    return asyncio.run(work)


@pytest.fixture(scope="module", autouse=True)
def no_open_sockets() -> Iterator[None]:
    """Find what was left open before the module is over: `pytestmark` makes it a failure."""
    yield
    gc.collect()


def model_for(server: ChatServer, name: str, **settings: Any) -> OpenAIModel:
    return OpenAIModel(name, base_url=server.url, max_retries=settings.pop("max_retries", 0), **settings)


def ask(
    model: OpenAIModel, composition: Composition | None = None, on_text: Callable[[str], None] | None = None
) -> Reply:
    return run(model.request(composition or composed(), on_text=on_text))


def failure(model: OpenAIModel, *, stream: bool = False) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(model, on_text=(lambda text: None) if stream else None)
    return caught.value


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


# What is sent


def test_the_composition_and_the_settings_are_what_the_server_gets(server: ChatServer) -> None:
    name = server.on("settings", says("Hello."))
    model = model_for(
        server, name, temperature=0.0, max_tokens=9, top_p=0.5, seed=7, stop=["END"], extra={"top_k": 3, "seed": 8}
    )
    ask(model, composed(tools=[ADD]))
    body = server.to(name)[-1].body
    messages = body.pop("messages")
    assert [(message["role"], message["content"]) for message in messages] == [
        ("system", "Be brief."),
        ("user", "Say hello."),
    ]
    assert body.pop("tools")[0]["function"]["parameters"] == ADD.parameters
    assert body == {
        "model": name, "temperature": 0.0, "max_tokens": 9, "top_p": 0.5, "seed": 8, "stop": ["END"], "top_k": 3,
    }  # fmt: skip


def test_without_tools_and_settings_only_model_and_messages_are_sent(server: ChatServer) -> None:
    name = server.on("bare", says("Hello."))
    ask(model_for(server, name))
    assert set(server.to(name)[-1].body) == {"model", "messages"}


def test_a_history_with_tool_traffic_is_accepted(server: ChatServer) -> None:
    name = server.on("history", says("5"))
    history = Conversation(
        [
            Message("user", "2+3?"),
            Message("assistant", tool_calls=(ToolCall("1", "add", '{"a":2,"b":3}'), ToolCall("2", "add", "{}"))),
            Message("tool", "5", tool_call_id="1"),
            Message("tool", "a is missing", tool_call_id="2"),
            Message("assistant", "5"),
        ]
    )
    assert ask(model_for(server, name), composed("Sure?", conversation=history)).message.text == "5"


def test_text_of_any_script_arrives_unchanged(server: ChatServer) -> None:
    text = "Grüße, 你好, \U0001f9ea\u200d, \x00 and \u2028."
    name = server.on("echo", lambda asked: says(asked.body["messages"][-1]["content"])(asked))
    pieces: list[str] = []
    assert ask(model_for(server, name), composed(text)).message.text == text
    assert ask(model_for(server, name), composed(text), pieces.append).message.text == "".join(pieces) == text


def test_a_lone_surrogate_in_the_prompt_is_refused_with_a_remedy(server: ChatServer) -> None:
    name = server.on("surrogate", says("never"))
    with pytest.raises(ModelRequestError, match="lone surrogate"):
        ask(model_for(server, name), composed("cut \ud83d here"))


def test_settings_that_json_cannot_hold_are_refused(server: ChatServer) -> None:
    assert isinstance(failure(model_for(server, "nan", temperature=float("nan"))), ModelRequestError)
    odd: Any = {"x": object()}
    assert "object" in str(failure(model_for(server, "odd", extra=odd)))


def test_the_official_endpoint_is_told_max_completion_tokens() -> None:
    model = OpenAIModel("gpt", api_key=KEY, max_tokens=5)
    assert model.host == "api.openai.com"
    assert model._body(composed())["max_completion_tokens"] == 5


# What comes back


def test_a_whole_reply_has_text_usage_finish_reason_and_model(server: ChatServer) -> None:
    reply = ask(model_for(server, server.on("plain", says("Hello there."))))
    assert reply == Reply(Message("assistant", "Hello there."), Usage(12, 5, 8), "stop", "served")


def test_a_streamed_reply_is_the_same_and_its_pieces_are_heard_in_order(server: ChatServer) -> None:
    pieces: list[str] = []
    reply = ask(model_for(server, server.on("streamed", says("Hello there, you."))), on_text=pieces.append)
    assert pieces == ["Hello", " there,", " you."]
    assert reply == Reply(Message("assistant", "Hello there, you."), Usage(12, 5, 8), "stop", "served")


@both
def test_parallel_tool_calls_come_whole_and_in_order(server: ChatServer, stream: bool) -> None:
    name = server.on("calls", says("Let me see.", ("x", "add", '{"a": 1, "b": 2}'), ("y", "add", '{"a": 3, "b": 4}')))
    reply = ask(model_for(server, name), composed(tools=[ADD]), on_text=(lambda text: None) if stream else None)
    assert reply.message.tool_calls == (
        ToolCall("x", "add", '{"a": 1, "b": 2}'),
        ToolCall("y", "add", '{"a": 3, "b": 4}'),
    )
    assert reply.message.text == "Let me see."
    assert reply.finish_reason == "tool_calls"


def test_characters_split_over_packets_and_surrogates_split_over_chunks_are_joined(server: ChatServer) -> None:
    event = b"data: %s\n\n" % json.dumps(chunk(content="né \U0001f600"), ensure_ascii=False).encode()
    bytewise = [event[i : i + 1] for i in range(len(event))]
    halves = [
        b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % half for half in (rb"\ud83d", rb"\ude80!")
    ]
    name = server.on("unicode", streams(*bytewise, *halves, chunk("stop")))
    pieces: list[str] = []
    reply = ask(model_for(server, name), on_text=pieces.append)
    assert reply.message.text == "né \U0001f600\U0001f680!"
    assert pieces == ["né \U0001f600", "\U0001f680!"]


def test_a_surrogate_without_its_half_becomes_a_replacement_character(server: ChatServer) -> None:
    half = b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"},"finish_reason":"stop"}]}\n\n'
    pieces: list[str] = []
    reply = ask(model_for(server, server.on("half", streams(half))), on_text=pieces.append)
    assert "".join(pieces) == reply.message.text == "\ufffd"


def test_a_huge_stream_arrives_whole(server: ChatServer) -> None:
    name = server.on("huge", streams(*[chunk(content=f"{i:09d} ") for i in range(5_000)], chunk("stop")))
    heard: list[str] = []
    reply = ask(model_for(server, name), on_text=heard.append)
    assert reply.message.text == "".join(f"{i:09d} " for i in range(5_000)) == "".join(heard)


def test_one_huge_event_arrives_whole(server: ChatServer) -> None:
    name = server.on("wide", streams(chunk(content="x" * 4_000_000), chunk("stop")))
    assert len(ask(model_for(server, name), on_text=lambda text: None).message.text) == 4_000_000


@both
def test_a_refusal_is_the_text_of_the_reply(server: ChatServer, stream: bool) -> None:
    whole, pieces = (
        sends(completion(refusal="I cannot.")),
        streams(chunk(refusal="I can"), chunk(refusal="not."), chunk("stop")),
    )
    name = server.on("refusal", lambda asked: (pieces if asked.body.get("stream") else whole)(asked))
    reply = ask(model_for(server, name), on_text=(lambda text: None) if stream else None)
    assert (reply.message.text, reply.finish_reason) == ("I cannot.", "refusal")


@pytest.mark.parametrize("said", ["length", "content_filter", "a_word_of_its_own"])
@both
def test_the_finish_reason_of_the_endpoint_is_kept(server: ChatServer, said: str, stream: bool) -> None:
    whole, pieces = sends(completion("Half a", finish_reason=said)), streams(chunk(content="Half a"), chunk(said))
    name = server.on("finish", lambda asked: (pieces if asked.body.get("stream") else whole)(asked))
    assert ask(model_for(server, name), on_text=(lambda text: None) if stream else None).finish_reason == said


def test_a_server_that_does_not_know_stream_options_is_asked_without_them_from_then_on(server: ChatServer) -> None:
    refuses = sends({"error": {"message": "Unrecognized request argument: stream_options"}}, 400)
    name = server.on(
        "no-options",
        lambda asked: (refuses if "stream_options" in asked.body else streams(chunk("stop", content="Hi")))(asked),
    )
    model = model_for(server, name)
    assert [ask(model, on_text=lambda text: None).message.text for _ in range(2)] == ["Hi", "Hi"]
    assert ["stream_options" in asked.body for asked in server.to(name)] == [True, False, False]


def test_json_under_another_content_type_is_read(server: ChatServer) -> None:
    name = server.on("odd-type", sends(completion("Hi"), media_type="text/plain"))
    assert ask(model_for(server, name)).message.text == "Hi"


# What goes wrong


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ModelRequestError),
        (401, ModelAuthError),
        (403, ModelAuthError),
        (404, ModelRequestError),
        (408, ModelUnavailable),
        (409, ModelUnavailable),
        (413, ModelRequestError),
        (418, ModelRequestError),
        (422, ModelRequestError),
        (429, ModelRateLimited),
        (500, ModelUnavailable),
        (503, ModelUnavailable),
    ],
)
@both
def test_a_status_becomes_an_error_that_names_model_host_status_and_reason(
    server: ChatServer, status: int, kind: type[ModelError], stream: bool
) -> None:
    name = server.on(f"status-{status}", sends({"error": {"message": "because of the moon", "code": None}}, status))
    error = failure(model_for(server, name), stream=stream)
    assert type(error) is kind
    assert (error.model, error.host, error.status) == (name, server.host, status)
    assert str(error).startswith(f"{name} at {server.host}: {status}: because of the moon; ")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"detail": "no such field"}, "no such field"),
        ({"detail": [{"loc": ["body"], "msg": "bad"}]}, '[{"loc": ["body"], "msg": "bad"}]'),
        ({"message": "plain"}, "plain"),
        ({"error": "just text"}, "just text"),
        ({"strange": 1}, '{"strange": 1}'),
        ("<html>\n  Bad   Gateway</html>", "<html> Bad Gateway</html>"),
        (b"", "Bad Request"),
        (b"\xff\xfe", "\ufffd"),
        ("y" * 10_000, "y..."),
    ],
)
def test_whatever_form_the_reason_has_it_is_told(server: ChatServer, body: Any, said: str) -> None:
    error = failure(model_for(server, server.on("forms", sends(body, 400))))
    assert said in str(error)
    assert len(str(error)) < 1_000


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({}, None),
    ],
)
def test_a_rate_limit_says_how_long_to_wait(server: ChatServer, headers: dict[str, str], seconds: float | None) -> None:
    error = failure(
        model_for(server, server.on("limited", sends({"error": {"message": "slow"}}, 429, headers=headers)))
    )
    assert isinstance(error, ModelRateLimited)
    assert error.retry_after == seconds


def test_a_used_up_quota_does_not_suggest_waiting(server: ChatServer) -> None:
    body = {"error": {"message": "no more", "code": "insufficient_quota"}}
    assert "waiting will not help" in str(failure(model_for(server, server.on("quota", sends(body, 429)))))


def test_a_prompt_that_is_too_long_suggests_a_smaller_budget(server: ChatServer) -> None:
    body = {"error": {"message": "8192 tokens", "code": "context_length_exceeded"}}
    assert "smaller budget" in str(failure(model_for(server, server.on("long", sends(body, 400)))))


@pytest.mark.parametrize("status", [429, 500])
@both
def test_max_retries_counts_the_further_attempts(server: ChatServer, status: int, stream: bool) -> None:
    fails = sends({"error": {"message": "no"}}, status, headers={"retry-after-ms": "1"})
    name = server.on(f"flaky-{status}-{stream}", in_turn(fails, fails, says("At last.")))
    heard: list[str] = []
    reply = ask(model_for(server, name, max_retries=2), on_text=heard.append if stream else None)
    assert reply.message.text == "At last."
    assert len(server.to(name)) == 3
    assert "".join(heard) == ("At last." if stream else "")

    name = server.on(f"broken-{status}-{stream}", fails)
    failure(model_for(server, name, max_retries=1), stream=stream)
    assert len(server.to(name)) == 2


@pytest.mark.parametrize("status", [400, 401])
def test_what_will_not_get_better_is_not_tried_again(server: ChatServer, status: int) -> None:
    name = server.on(f"final-{status}", sends({"error": {"message": "no"}}, status))
    failure(model_for(server, name, max_retries=3))
    assert len(server.to(name)) == 1


@pytest.mark.parametrize(
    "cut", [b'40\r\ndata: {"choices":[{"index":0,"delta":{"content":" wor', b""], ids=["in a chunk", "between"]
)
def test_a_connection_cut_in_a_stream_keeps_the_text_so_far(server: ChatServer, cut: bytes) -> None:
    name = server.on("cut", streams(chunk(content="Hello,"), cut=cut))
    asked = len(server.to(name))
    heard: list[str] = []
    with pytest.raises(ModelInterrupted, match="broke off after 6 characters") as caught:
        ask(model_for(server, name, max_retries=3), on_text=heard.append)
    assert caught.value.text == "".join(heard) == "Hello,"
    assert server.host in str(caught.value)
    assert len(server.to(name)) == asked + 1  # a stream that began is never tried again


def test_a_stream_that_ends_without_a_finish_reason_was_cut(server: ChatServer) -> None:
    name = server.on("unfinished", streams(chunk(content="Half"), done=False))
    error = failure(model_for(server, name), stream=True)
    assert isinstance(error, ModelInterrupted)
    assert error.text == "Half"


def test_half_a_tool_call_never_reaches_the_caller(server: ChatServer) -> None:
    half = {"index": 0, "id": "1", "type": "function", "function": {"name": "pay", "arguments": '{"amount": 1'}}
    name = server.on("half-call", streams(chunk(tool_calls=[half]), cut=b"ff\r\n"))
    assert isinstance(failure(model_for(server, name), stream=True), ModelInterrupted)


def test_an_error_event_in_the_stream_interrupts_it(server: ChatServer) -> None:
    name = server.on("event", streams(chunk(content="So far"), {"error": {"message": "out of memory", "code": 500}}))
    error = failure(model_for(server, name), stream=True)
    assert isinstance(error, ModelInterrupted)
    assert error.text == "So far"
    assert "out of memory" in str(error)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(400, ModelRequestError), ("429", ModelRateLimited), ("overloaded", ModelUnavailable), (None, ModelUnavailable)],
)
def test_an_error_event_instead_of_a_stream_is_told_like_a_status(
    server: ChatServer, code: object, kind: type[ModelError]
) -> None:
    name = server.on("first-event", streams({"error": {"message": "because", "code": code}}))
    error = failure(model_for(server, name), stream=True)
    assert type(error) is kind
    assert "because" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": [',
        b"\xff\xfe\xfd",
        b"[" * 100_000,
        b"null",
        b"[]",
        b'"text"',
        {},
        {"choices": []},
        {"choices": "none"},
        {"choices": [1]},
        {"choices": [{"message": "hi"}]},
        completion(content=5),
        completion(tool_calls="add"),
        completion(tool_calls=[1]),
        completion(tool_calls=[{"id": "1", "function": "add"}]),
        completion(tool_calls=[{"id": 1, "function": {"name": "add"}}]),
        completion(tool_calls=calls(("1", "", "{}"))),
        completion("hi", usage="many"),
        {"error": {"message": "sorry"}},
    ],
    ids=lambda body: str(body)[:40],
)
def test_a_malformed_reply_is_a_reply_error(server: ChatServer, body: Any) -> None:
    error = failure(model_for(server, server.on("malformed", sends(body))))
    assert type(error) is ModelReplyError
    assert "not a chat completion" in str(error)
    assert len(str(error)) < 1_000


def test_a_page_that_is_not_an_api_is_a_reply_error(server: ChatServer) -> None:
    name = server.on("page", sends("<html>Welcome to nginx!</html>", media_type="text/html"))
    assert type(failure(model_for(server, name))) is ModelReplyError
    assert type(failure(model_for(server, name), stream=True)) is ModelReplyError


def test_a_malformed_event_is_a_reply_error(server: ChatServer) -> None:
    name = server.on("malformed-event", streams(chunk(content="a"), b"data: {nonsense\n\n"))
    assert type(failure(model_for(server, name), stream=True)) is ModelReplyError


def test_no_answer_in_time(server: ChatServer) -> None:
    error = failure(model_for(server, server.on("slow", hangs(5)), timeout=0.2))
    assert isinstance(error, ModelUnavailable)
    assert "no answer in time" in str(error)


def test_a_stream_that_stalls_is_interrupted(server: ChatServer) -> None:
    def stalls(asked: Any) -> Any:
        return streams(chunk(content="a"), pause=0.5)(asked)

    error = failure(model_for(server, server.on("stalls", stalls), timeout=0.2), stream=True)
    assert isinstance(error, ModelInterrupted)


def test_nobody_listens_at_the_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    error = failure(OpenAIModel("m", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0))
    assert isinstance(error, ModelUnavailable)
    assert f"127.0.0.1:{port}" in str(error)
    assert "is the server running" in str(error)


# Keys and addresses


def test_no_key_names_the_variables_and_asks_nobody() -> None:
    with pytest.raises(ModelAuthError, match=r"(?s)OPENAI_API_KEY.*OPENAI_BASE_URL"):
        ask(OpenAIModel("gpt"))


def test_a_composition_can_be_made_without_a_key() -> None:
    assert OpenAIModel("gpt").name == "gpt"


def test_a_base_url_needs_no_key(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    name = server.on("keyless", says("Hi"))
    assert ask(OpenAIModel(name)).message.text == "Hi"
    assert server.to(name)[-1].headers["authorization"] == "Bearer no-key"


def test_the_key_of_the_environment_is_sent(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    name = server.on("keyed", says("Hi"))
    ask(model_for(server, name))
    assert server.to(name)[-1].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", ["sk-with\na-line-break", "sk-\u201cquoted\u201d", "two words"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(server: ChatServer, key: str) -> None:
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
def test_an_address_that_is_none_is_refused_at_construction(url: str) -> None:
    with pytest.raises(ModelRequestError, match="base_url") as caught:
        OpenAIModel("m", base_url=url)
    assert "secret" not in str(caught.value)


def test_an_address_that_is_none_in_the_environment_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000")
    with pytest.raises(ModelRequestError, match="OPENAI_BASE_URL"):
        ask(OpenAIModel("m"))


# Event loops, listeners and cancellation


def test_one_model_serves_many_event_loops(server: ChatServer) -> None:
    model = model_for(server, server.on("loops", says("Hi")))
    for _ in range(3):
        assert ask(model).message.text == "Hi"
    assert not model._clients


def test_many_requests_at_once_in_one_loop(server: ChatServer) -> None:
    name = server.on("many", lambda asked: says(asked.body["messages"][-1]["content"])(asked))
    model = model_for(server, name)

    async def all_of_them() -> list[str]:
        replies = await asyncio.gather(*(model.request(composed(f"number {i}")) for i in range(50)))
        return [reply.message.text for reply in replies]

    assert run(all_of_them()) == [f"number {i}" for i in range(50)]


def test_two_threads_with_a_loop_each_share_a_model(server: ChatServer) -> None:
    model = model_for(server, server.on("threads", says("Hi there")))

    async def main() -> list[str]:
        asked = [asyncio.to_thread(asyncio.run, model.request(composed())) for _ in range(4)]
        return [reply.message.text for reply in await asyncio.gather(*asked)]

    assert run(main()) == ["Hi there"] * 4


def test_closing_a_model_lets_it_be_used_again(server: ChatServer) -> None:
    model = model_for(server, server.on("closing", says("Hi")))

    async def main() -> str:
        await model.aclose()
        await model.request(composed())
        await model.aclose()
        return (await model.request(composed())).message.text

    assert run(main()) == "Hi"


def test_a_client_of_ones_own_is_used_and_left_open(server: ChatServer) -> None:
    from openai import AsyncOpenAI

    async def main() -> tuple[str, bool]:
        async with AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            model = OpenAIModel(server.on("own", says("Hi")), client=client)
            reply = await model.request(composed())
            await model.aclose()
            assert model.host == server.host
            return reply.message.text, client.is_closed()

    assert run(main()) == ("Hi", False)


def test_a_client_of_ones_own_that_was_closed_is_not_told_as_a_fault_of_the_model(server: ChatServer) -> None:
    from openai import AsyncOpenAI

    async def main() -> None:
        client = AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0)
        await client.close()
        await OpenAIModel("m", client=client).request(composed())

    with pytest.raises(RuntimeError, match="closed"):
        run(main())


def test_an_event_loop_that_was_closed_without_ceremony_is_forgotten(server: ChatServer) -> None:
    model = model_for(server, server.on("abrupt", says("Hi")))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(model._client())  # no request: nobody would close its socket
    loop.close()
    assert run(model.request(composed())).message.text == "Hi"
    assert not model._clients


def test_a_whole_reply_that_is_cut_is_unavailable(server: ChatServer) -> None:
    name = server.on("cut-whole", streams(b'{"choices": [', cut=b"40\r\n"))
    assert type(failure(model_for(server, name))) is ModelUnavailable


def test_what_a_listener_raises_reaches_the_caller_and_ends_the_stream(server: ChatServer) -> None:
    name = server.on("listener", streams(lambda: (chunk(content="word ") for _ in range(10_000_000)), pause=0.001))

    def listener(text: str) -> None:
        raise json.JSONDecodeError("mine", text, 0)

    dropped = server.dropped
    with pytest.raises(json.JSONDecodeError, match="mine"):
        ask(model_for(server, name), on_text=listener)
    assert _until(lambda: server.dropped > dropped)


def test_cancelling_ends_the_stream_and_the_model_stays_usable(server: ChatServer) -> None:
    name = server.on("endless", streams(lambda: (chunk(content="word ") for _ in range(10_000_000)), pause=0.001))
    model = model_for(server, name)
    dropped = server.dropped

    async def main() -> str:
        heard = asyncio.Event()
        task = asyncio.create_task(model.request(composed(), on_text=lambda text: heard.set()))
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.on(name, says("Hi"))
        return (await model.request(composed())).message.text

    assert run(main()) == "Hi"
    assert _until(lambda: server.dropped > dropped)


def _until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def test_without_the_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ModelError, match="pip install"):
        ask(OpenAIModel("m", api_key=KEY))


def test_importing_the_models_loads_no_sdk() -> None:
    import subprocess
    import sys

    code = "import sys, agentkit.models; print(sorted({'openai', 'httpx', 'httpx2', 'sqlalchemy'} & set(sys.modules)))"
    paths = [str(Path(path).resolve()) for path in sys.path if path]
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}; {code}"], capture_output=True, text=True
    )
    assert shown.stdout.strip() == "[]", shown.stderr
