"""Control tokens at endpoints that apply a chat template: broken in untrusted text, original in replies and history."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from agentkit import (
    Agent,
    AnthropicModel,
    Message,
    OpenAIModel,
    OpenAIResponsesModel,
    OutputSpec,
    PromptContext,
    ToolCall,
    tool,
)
from agentkit.models import Delta, Model, ModelInterrupted, ModelReplyError
from agentkit.prompts import Document, Layers, MemoPrompt, Text, ToolSpec, compose
from agentkit_prompts.chat_templates.guard.token_marks import Unmarking
from tests.models.asking import NOTHING_LEFT_OPEN, both, composed
from tests.models.wire_forms import COMPLETION, WIRES, Wire, model_of, wire_reply
from tests.servers import ChatServer, chunk, completion, in_turn, sends, streams

pytestmark = NOTHING_LEFT_OPEN
TOKEN = "<|im_start|>"
MARKED = "<\u200b|im_start|>"
TWICE = "<\u200b\u200b|im_start|>"


@tool
def write(text: str) -> str:
    """Write a text."""
    return f"wrote {text}"


def sent(model: Model, **context: Any) -> str:
    layers = Layers("Be brief.", before_input=MemoPrompt())
    body = model.request_body(compose(layers, PromptContext(**context)))  # type: ignore[attr-defined]
    return json.dumps(body, ensure_ascii=False)


@pytest.mark.parametrize("wire", [*WIRES, COMPLETION], ids=lambda wire: wire.name)
@both
def test_replies_arguments_and_history_contain_the_original_text(server: ChatServer, wire: Wire, stream: bool) -> None:
    arguments = json.dumps({"text": f"{MARKED}{TWICE}"}, ensure_ascii=False)
    handlers = wire_reply(wire, "", "", ("c1", "write", arguments)), wire_reply(wire, "", f"copy {MARKED} end")
    name = server.on("copies", in_turn(*handlers))
    events: list[Any] = []
    agent = Agent(model_of(wire, server, name), "Copy.", tools=[write])
    result = agent.run_sync(f"Copy {TOKEN}{MARKED}", on_event=events.append if stream else None)

    original = f"{TOKEN}{MARKED}"
    assert result.output == f"copy {TOKEN} end"
    assert [message.text for message in result.messages if message.role == "tool"] == [f"wrote {original}"]
    calls = [call for message in result.messages for call in message.tool_calls]
    assert [json.loads(call.arguments) for call in calls] == [{"text": original}]
    texts = [event.text for event in events if type(event).__name__ == "TextDelta"]
    assert "".join(texts) == (f"copy {TOKEN} end" if stream else "")
    for asked in server.asked[-2:]:
        body = json.dumps(asked.body, ensure_ascii=False)
        # The chat template of a completion writes tokens itself.
        assert wire is COMPLETION or TOKEN not in body
        assert f"{MARKED}{TWICE}" in body


@pytest.mark.parametrize("model", [OpenAIModel, OpenAIResponsesModel, AnthropicModel])
@pytest.mark.parametrize("name", ["qwen2.5-7b", "a-new-model"])
def test_all_untrusted_texts_are_marked_and_texts_of_the_developer_are_not(model: Any, name: str) -> None:
    local = model(name, base_url="http://127.0.0.1:9/v1", api_key="key-of-nobody")
    history = [
        Message("user", f"a {TOKEN}"),
        Message("assistant", f"b {TOKEN}", [ToolCall("c1", "f", {"text": TOKEN, f"k {TOKEN}": [TOKEN]})]),
        Message("tool", f"c {TOKEN}", tool_call_id="c1", name="f"),
        Message("assistant", f"d {TOKEN}"),
    ]
    parameters = {"type": "object", "properties": {"x": {"type": "string", "description": f"x {TOKEN}"}}}
    foreign = ToolSpec("f", f"e {TOKEN}", parameters, trust="untrusted")
    documents = [Document(f"g {TOKEN}\n{TOKEN}"), Document(f"h {TOKEN[:6]}"), Document(f"{TOKEN[6:]} i")]
    text = sent(local, user_input=f"j {TOKEN}", conversation=history, tools=[foreign], documents=documents)
    assert (text.count(TOKEN), text.count(MARKED)) == (0, 12)
    trusted = ToolSpec("f", f"e {TOKEN}", {"type": "object"})
    developer = compose(Layers(f"Use {TOKEN}."), PromptContext(user_input="a", tools=[trusted]))
    assert json.dumps(local.request_body(developer)).count(TOKEN) == 2


@pytest.mark.parametrize("name", ["qwen2.5-7b", "a-new-model"])
def test_tokens_that_parts_form_together_names_and_repeated_keys_are_marked(name: str) -> None:
    local = OpenAIModel(name, base_url="http://127.0.0.1:9/v1", api_key="key-of-nobody")
    twice = f'{{"text": "{TOKEN}", "text": "x"}}'
    history = [
        Message("user", (Text(f"{TOKEN}<|im_"), Text("start|>"), Text("ok")), name=TOKEN),
        Message("assistant", "", [ToolCall(TOKEN, TOKEN, "{}"), ToolCall("c2", "f", twice)]),
        Message("tool", "a", tool_call_id=TOKEN, name=TOKEN),
        Message("tool", "b", tool_call_id="c2", name="f"),
    ]
    body = local.request_body(composed("Hi", conversation=history))
    user, reply, first, _, _ = [message for message in body["messages"] if message["role"] != "system"]
    assert [part["text"] for part in user["content"]] == [f"{MARKED}<\u200b|im_", "start|>", "ok"]
    assert user["name"] == MARKED
    assert [call["function"]["arguments"] for call in reply["tool_calls"]] == ["{}", '{"text": "x"}']
    assert (reply["tool_calls"][0]["id"], reply["tool_calls"][0]["function"]["name"]) == (MARKED, MARKED)
    assert first["tool_call_id"] == MARKED
    assert TOKEN not in json.dumps(body, ensure_ascii=False)


@pytest.mark.parametrize(
    ("name", "url", "text", "is_marked"),
    [
        ("gpt-5-mini", None, TOKEN, False),
        ("a-model", "https://api.deepseek.com", TOKEN, False),
        ("a-model", "https://x.openai.azure.com/openai/v1", TOKEN, False),
        ("a-model", "https://openrouter.ai/api/v1", TOKEN, True),
        ("a-model", "https://api.openai.com.example.org/v1", TOKEN, True),
        ("a-model", "http://127.0.0.1:9/v1", "[INST]", True),
        ("a-model", "http://127.0.0.1:9/v1", "<｜User｜>", True),
        ("a-model", "http://127.0.0.1:9/v1", "USER: a User: b", False),
        ("vicuna-7b", "http://127.0.0.1:9/v1", "USER: a", True),
        ("qwen2.5-7b", "http://127.0.0.1:9/v1", "[INST] <|eot_id|>", False),
        ("llama3.1:8b", "http://127.0.0.1:9/v1", "<|eot_id|>", True),
    ],
)
def test_the_name_and_the_host_decide_which_tokens_are_marked(
    name: str, url: str | None, text: str, is_marked: bool
) -> None:
    body = OpenAIModel(name, base_url=url, api_key="key-of-nobody").request_body(composed(text))
    assert ("\u200b" in body["messages"][-1]["content"]) == is_marked


def test_a_text_without_tokens_is_not_copied() -> None:
    local = OpenAIModel("qwen2.5-7b", base_url="http://127.0.0.1:9/v1")
    composition = composed("plain", conversation=[Message("user", "a"), Message("assistant", "b")])
    assert local._guarded(composition) == (composition, None)


SPELLINGS = (
    (False, MARKED, TOKEN),
    (False, TWICE, MARKED),
    (False, f"<{MARKED}<\u200b|x", f"<{TOKEN}<\u200b|x"),
    (True, f'{{"a": "{MARKED}"}}', f'{{"a": "{TOKEN}"}}'),
    (True, r'{"a": "<\u200b|im_start|>"}', f'{{"a": "{TOKEN}"}}'),
    (True, r'{"a": "\u003c\u200B|im_start|\u003E"}', r'{"a": "\u003c|im_start|\u003E"}'),
    (True, r'{"a": "<\u200b\u200b|im_start|>\n"}', r'{"a": "<\u200b|im_start|>\n"}'),
    (True, '{"a": "<\u200b|\\"|>"}', '{"a": "<|\\"|>"}'),
    (True, r'{"a": "\\u200b|im_start|>", "b": "\\"}', r'{"a": "\\u200b|im_start|>", "b": "\\"}'),
    (True, r'{"a": "<\u200b\uff5cend\uff5c>"}', r'{"a": "<\uff5cend\uff5c>"}'),
)


@pytest.mark.parametrize(("is_json", "text", "original"), SPELLINGS)
def test_a_stream_can_cut_a_token_at_any_place(is_json: bool, text: str, original: str) -> None:
    unmarking = Unmarking([TOKEN, '<|"|>', "<｜end｜>"], is_json=is_json)
    wrong: list[Any] = []
    for size in (1, 2, 3, 5, 8, len(text)):
        pieces, held = [], ""
        for start in range(0, len(text), size):
            held += text[start : start + size]
            end = unmarking.ready(held)
            pieces.append(unmarking.whole(held[:end]))
            held = held[end:]
        pieces.append(unmarking.whole(held))
        if "".join(pieces) != original:
            wrong.append((size, pieces))
    assert wrong == []


def test_deltas_keep_their_order_and_a_cut_stream_restores_its_text(server: ChatServer) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "write", "arguments": '{"text": "<'}}
    more = {"index": 0, "function": {"arguments": '\u200b|im_start|>"}'}}
    pieces = [chunk(content="a <"), chunk(tool_calls=[call]), chunk(tool_calls=[more]), chunk("tool_calls")]
    name = server.on("mixed", streams(*pieces))
    deltas: list[Delta] = []
    local = OpenAIModel(name, base_url=server.url, max_retries=0)
    asyncio.run(local.request(composed(f"Copy {TOKEN}"), on_delta=deltas.append))
    assert [(delta.kind, delta.text) for delta in deltas] == [
        ("text", "a "),
        ("text", "<"),
        ("arguments", '{"text": "'),
        ("arguments", f'{TOKEN}"}}'),
    ]

    name = server.on("cut", streams(chunk(content=f"a {MARKED} b"), done=False))
    local = OpenAIModel(name, base_url=server.url, max_retries=0)
    with pytest.raises(ModelInterrupted) as caught:
        asyncio.run(local.request(composed(f"Copy {TOKEN}"), on_delta=deltas.append))
    assert caught.value.text == f"a {TOKEN} b"

    name = server.on("invalid", streams(chunk(content=f"a {MARKED} b"), chunk(tool_calls=[more]), chunk("stop")))
    local = OpenAIModel(name, base_url=server.url, max_retries=0)
    with pytest.raises(ModelReplyError) as invalid:
        asyncio.run(local.request(composed(f"Copy {TOKEN}"), on_delta=deltas.append))
    assert invalid.value.text == f"a {TOKEN} b"


def test_a_stream_that_ends_in_the_start_of_a_token_is_complete(server: ChatServer) -> None:
    name = server.on("ends", streams(chunk(content="a <"), chunk("stop")))
    deltas: list[Delta] = []
    local = OpenAIModel(name, base_url=server.url)
    asyncio.run(local.request(composed(f"Copy {TOKEN}"), on_delta=deltas.append))
    assert "".join([delta.text for delta in deltas]) == "a <"


def test_a_new_attempt_starts_without_the_end_of_the_cut_stream(server: ChatServer) -> None:
    pieces = streams(chunk(content="<"), done=False), streams(chunk(content="b"), chunk("stop"))
    name = server.on("again", in_turn(*pieces))
    deltas: list[Delta] = []
    local = OpenAIModel(name, base_url=server.url, max_retries=1)
    reply = asyncio.run(local.request(composed(f"Copy {TOKEN}"), on_delta=deltas.append))
    assert (reply.message.text, "".join([delta.text for delta in deltas])) == ("b", "b")


def test_parts_and_unsigned_thinking_are_restored_and_signed_thinking_is_not(server: ChatServer) -> None:
    image = {"image_url": {"url": "https://example.org/a.png"}}
    name = server.on("thinks", sends(completion(MARKED, reasoning_content=MARKED, images=[image])))
    message = asyncio.run(OpenAIModel(name, base_url=server.url).request(composed(TOKEN))).message
    assert (message.parts[0], message.reasoning) == (Text(TOKEN), TOKEN)

    content = [{"type": "thinking", "thinking": MARKED, "signature": "S"}, {"type": "text", "text": MARKED}]
    document = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
    name = server.on("signs", sends({**document, "stop_reason": "end_turn", "usage": {}}))
    model = AnthropicModel(name, base_url=server.url.removesuffix("/v1"), api_key="key-of-nobody")
    message = asyncio.run(model.request(composed(TOKEN))).message
    assert (message.text, message.reasoning) == (TOKEN, MARKED)


def test_a_mark_of_the_model_stays_if_the_prompt_has_no_token(server: ChatServer) -> None:
    name = server.on("own", sends(completion(f"a {MARKED}")))
    result = Agent(OpenAIModel(name, base_url=server.url), "S.").run_sync("Go")
    assert result.output == f"a {MARKED}"


@both
def test_a_structured_answer_contains_the_original_text_also_of_an_escaped_mark(
    server: ChatServer, stream: bool
) -> None:
    @dataclass
    class Answer:
        text: str

    for mark, mode in product(("\\u200b", "\u200b"), ("native", "prompted")):
        text = f'{{"text": "<{mark}|im_start|>system"}}'
        name = server.on("structured", streams(chunk(content=text[:12]), chunk("stop", content=text[12:])))
        output = OutputSpec(Answer, mode=mode)  # type: ignore[call-overload]
        agent = Agent(OpenAIModel(name, base_url=server.url), "Copy.", output=output)
        result = agent.run_sync(f"Copy {TOKEN}", on_event=(lambda event: None) if stream else None)
        assert result.output == Answer(f"{TOKEN}system")


@pytest.mark.parametrize(
    ("model", "token"),
    [
        ("kimi-k2", "<|im_middle|>"),
        ("minimax-m2", "]~b]system"),
        ("command-r", "<|START_OF_TURN_TOKEN|>"),
        ("granite-3.3", "<|start_of_role|>"),
        ("apertus-8b", "<|developer_start|>"),
    ],
)
def test_tokens_of_models_without_a_registered_template_are_broken(model: str, token: str) -> None:
    local = OpenAIModel(model, base_url="http://localhost:1/v1")
    assert token not in sent(local, user_input=f"a {token} b")
    assert token in sent(OpenAIModel("gpt-5", api_key="key-of-nobody"), user_input=f"a {token} b")
