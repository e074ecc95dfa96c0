"""The payload of an Anthropic messages request, checked against the types of the official SDK."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agentkit.prompts import (
    Audio,
    Composition,
    File,
    Image,
    Layers,
    MediaError,
    Message,
    PromptContext,
    Size,
    Text,
    TextPrompt,
    ToolCall,
    ToolSpec,
    Url,
    UserInput,
    compose,
)
from tests.cases import for_cases
from tests.loopback import Received, answering
from tests.prompts.laws import law

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 8
WEATHER = ToolSpec("weather", "Tells the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})


@cache
def forms() -> dict[str, TypeAdapter[Any]]:
    """Return the types of the SDK. The import takes a second, so a collection of tests must not need it."""
    types = pytest.importorskip("anthropic").types
    return {
        "messages": TypeAdapter(list[types.MessageParam]),
        "system": TypeAdapter(list[types.TextBlockParam]),
        "tools": TypeAdapter(list[types.ToolParam]),
        "output_config": TypeAdapter(types.OutputConfigParam),
    }


def payload(ctx: PromptContext | None = None, layers: Layers | None = None, **fields: Any) -> dict[str, Any]:
    """Compose, check that the types of the SDK accept the payload and that turns alternate, and return plain data."""
    ctx = ctx or PromptContext(**{"user_input": "hello", **fields})
    made = compose(layers or Layers(), ctx).to_anthropic()
    forms()["messages"].validate_python(made["messages"], strict=True)
    forms()["system"].validate_python(made.get("system", []), strict=True)
    forms()["tools"].validate_python(made.get("tools", []), strict=True)
    roles = [message["role"] for message in made["messages"]]
    assert roles == [("user", "assistant")[number % 2] for number in range(len(roles))]
    texts = [block["text"] for block in blocks(made) if block["type"] == "text"]
    assert all(text.strip() for text in texts)
    marks = json.dumps(made).count("cache_control")
    assert marks <= 4
    plain: dict[str, Any] = json.loads(json.dumps(made))
    return plain


def blocks(made: dict[str, Any]) -> list[dict[str, Any]]:
    return [*made.get("system", []), *(block for message in made["messages"] for block in message["content"])]


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


MARK = {"cache_control": {"type": "ephemeral"}}


def test_the_smallest_request_is_one_user_message() -> None:
    assert payload() == {"messages": [{"role": "user", "content": [text("hello")]}]}


def test_the_system_prompt_is_separate_blocks_that_end_at_cache_marks() -> None:
    layers = Layers(["Be kind.", TextPrompt("{{ extra.project }}")], before_input="Now:")
    made = payload(layers=layers, extra={"project": "apollo"}, tools=(WEATHER,))
    assert made["system"] == [text("Be kind.", **MARK), text("\n\napollo", **MARK)]
    assert "".join(block["text"] for block in made["system"]) == "Be kind.\n\napollo"
    assert made["messages"] == [{"role": "user", "content": [text("Now:\n\nhello")]}]
    assert made["tools"][-1]["cache_control"] == {"type": "ephemeral"}


def test_text_that_changes_in_each_turn_has_no_mark() -> None:
    layers = Layers(["Be kind.", TextPrompt("{{ documents }}", volatility="turn")], conversation=False)
    made = payload(layers=layers, documents=["a chunk"])
    assert [("cache_control" in block) for block in made["system"]] == [True, False]


def test_a_blank_prompt_is_not_a_separate_block() -> None:
    layers = Layers(["Be kind.", TextPrompt("{{ extra.gap }}", volatility="session")])
    made = payload(layers=layers, extra={"gap": " \n "})
    assert made["system"] == [text("Be kind.\n\n \n ", **MARK)]
    assert "system" not in payload(layers=Layers(TextPrompt("{{ extra.gap }}")), extra={"gap": "  "})


def test_at_most_four_marks_are_at_the_breakpoints_of_the_composition() -> None:
    layers = Layers(["Static.", TextPrompt("{{ extra.user }}")])
    ctx = PromptContext(
        user_input="now",
        conversation=[Message("user", "before"), Message("assistant", "yes")],
        tools=(WEATHER,),
        extra={"user": "Ada"},
    )
    made = payload(ctx, layers)
    assert len(compose(layers, ctx).breakpoints) == json.dumps(made).count("cache_control") == 4
    assert made["messages"][1]["content"] == [text("yes", **MARK)]
    assert made["messages"][2]["content"] == [text("now")]


def test_tool_calls_are_tool_use_blocks_and_results_are_one_user_message() -> None:
    calls = (ToolCall("a", "weather", '{"city": "Bonn"}'), ToolCall("b", "weather", '{"city": "Kiel"}'))
    traffic = [
        Message("assistant", "Let me look.", tool_calls=calls),
        Message("tool", "sunny", tool_call_id="a", name="weather"),
        Message("tool", "windy", tool_call_id="b", name="weather"),
    ]
    made = payload(tools=(WEATHER,), intermediate=traffic, layers=Layers(after_intermediate="Go on."))
    assert made["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                text("Let me look."),
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Bonn"}},
                {"type": "tool_use", "id": "b", "name": "weather", "input": {"city": "Kiel"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "b", "content": "windy"},
                text("Go on."),
            ],
        },
    ]
    assert made["tools"] == [
        {
            "name": "weather",
            "description": "Tells the weather.",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
            **MARK,
        }
    ]


@for_cases(
    ("written", "sent"),
    [
        ('{"a": [1, null]}', {"a": [1, None]}),
        ("", {}),
        ("  ", {}),
        ('{"a": ', {"invalid_arguments": '{"a": '}),
        ("[1]", {"invalid_arguments": "[1]"}),
        ('{"a": NaN}', {"invalid_arguments": '{"a": NaN}'}),
        ('{"a": 1e999}', {"invalid_arguments": '{"a": 1e999}'}),
        ('{"a": "\\ud83d"}', {"invalid_arguments": '{"a": "\\ud83d"}'}),
        ('{"\\ud83d": 1}', {"invalid_arguments": '{"\\ud83d": 1}'}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        ("[" * 100_000, {"invalid_arguments": "[" * 100_000}),
        ('{"a": ' + "9" * 5_000 + "}", {"invalid_arguments": '{"a": ' + "9" * 5_000 + "}"}),
    ],
)
def test_arguments_that_are_not_a_json_object_are_sent_as_text(written: str, sent: Any) -> None:
    traffic = [
        Message("assistant", tool_calls=(ToolCall("a", "weather", written),)),
        Message("tool", "", tool_call_id="a"),
    ]
    made = payload(intermediate=traffic)
    assert made["messages"][1]["content"] == [{"type": "tool_use", "id": "a", "name": "weather", "input": sent}]
    assert made["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "a"}]


def pair(name: str, result: str = "fine") -> list[Message]:
    return [
        Message("assistant", tool_calls=(ToolCall(name, "weather"),)),
        Message("tool", result, tool_call_id=name),
    ]


def ids(made: dict[str, Any]) -> list[tuple[str, str]]:
    uses = [block["id"] for block in blocks(made) if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in blocks(made) if block["type"] == "tool_result"]
    return list(zip(uses, results, strict=True))


def test_a_repeated_id_is_renamed_with_its_result() -> None:
    history = [Message("user", "1"), *pair("call_1"), Message("assistant", "so"), Message("user", "2"), *pair("call_1")]
    made = payload(conversation=history, intermediate=[*pair("call_2"), *pair("call_1")])
    assert ids(made) == [(name, name) for name in ("call_1", "call_1_2", "call_2", "call_1_3")]


def test_ids_of_other_providers_become_valid_ids_and_stay_different() -> None:
    made = payload(intermediate=[*pair("functions.f:0"), *pair("functions:f.0"), *pair("ü\ud800")])
    found = ids(made)
    assert len(set(found)) == 3
    for use, result in found:
        assert use == result
        assert use.replace("_", "").isalnum() and use.isascii()


def test_an_id_of_many_calls_gets_an_unused_number() -> None:
    made = payload(intermediate=[*pair("a"), *pair("a_2"), *pair("a"), *pair("a"), *pair("a_2"), *pair("a")])
    assert [use for use, _ in ids(made)] == ["a", "a_2", "a_3", "a_4", "a_2_2", "a_5"]
    assert all(use == result for use, result in ids(made))


def test_a_repeated_call_in_a_message_is_sent_once() -> None:
    twice = (ToolCall("a", "weather", '{"n": 1}'), ToolCall("a", "weather", '{"n": 2}'))
    traffic = [Message("assistant", tool_calls=twice), Message("tool", "x", tool_call_id="a")]
    made = payload(intermediate=traffic)
    assert ids(made) == [("a", "a")]
    assert made["messages"][1]["content"][0]["input"] == {"n": 1}


def test_adjacent_messages_of_one_role_are_merged_and_blank_messages_are_omitted() -> None:
    history = [
        Message("user", "one"),
        Message("user", "two"),
        Message("assistant", ""),
        Message("assistant", " \n"),
        Message("user", ""),
    ]
    made = payload(conversation=history)
    assert [block["text"] for block in made["messages"][0]["content"]] == ["one", "two", "hello"]


def test_a_conversation_that_begins_with_the_assistant_gets_an_opening() -> None:
    made = payload(conversation=[Message("assistant", "Hi, what can I do?"), Message("user", "Hm.")])
    assert made["messages"][0] == {"role": "user", "content": [text("(The conversation starts here.)")]}
    assert made["messages"][1]["content"] == [text("Hi, what can I do?")]


def test_system_messages_of_the_conversation_follow_the_system_prompt() -> None:
    history = [Message("system", "Be brief."), Message("user", "a"), Message("system", "Be kind.")]
    made = payload(conversation=history, layers=Layers("Help."))
    assert [block["text"] for block in made["system"]] == ["Help.", "Be brief.", "Be kind."]
    assert "cache_control" in made["messages"][0]["content"][0]


def test_images_and_documents_keep_their_order_among_the_text(tmp_path: Path) -> None:
    file = tmp_path / "plan.pdf"
    file.write_bytes(b"%PDF-1.7 ...")
    parts = (
        "Look:",
        Image(PNG),
        Image("https://example.org/cat.jpg"),
        "and",
        File(file),
        File("https://example.org/paper.pdf"),
        File(b"caf\xc3\xa9", media_type="text/plain", name="note.txt"),
    )
    made = payload(PromptContext(user_input=UserInput(parts)))
    assert made["messages"][0]["content"] == [
        text("Look:"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _base64(PNG)}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.jpg"}},
        text("and"),
        {
            "type": "document",
            "title": "plan.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": _base64(b"%PDF-1.7 ...")},
        },
        {
            "type": "document",
            "title": "paper.pdf",
            "source": {"type": "url", "url": "https://example.org/paper.pdf"},
        },
        {
            "type": "document",
            "title": "note.txt",
            "source": {"type": "text", "media_type": "text/plain", "data": "café"},
        },
    ]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@for_cases(
    ("image", "mime"),
    [
        (Image(b"\xff\xd8\xff\xe0"), "image/jpeg"),
        (Image(b"GIF89a"), "image/gif"),
        (Image(b"RIFF....WEBP"), "image/webp"),
        (Image(b"\xff\xd8\xff", media_type="image/png"), "image/png"),
        (Image(b"whatever", name="x.webp"), "image/webp"),
        (Image("data:image/gif;base64,R0lG"), "image/gif"),
    ],
)
def test_the_type_of_an_image_is_explicit_or_detected_from_its_first_bytes(image: Image, mime: str) -> None:
    made = payload(PromptContext(user_input=UserInput((image,))))
    assert made["messages"][0]["content"][0]["source"]["media_type"] == mime


def test_data_urls_are_sent_as_their_content() -> None:
    made = payload(PromptContext(user_input=UserInput((File("data:text/plain,a%20b"), File("data:,x")))))
    assert [block["source"]["data"] for block in made["messages"][0]["content"]] == ["a b", "x"]


@for_cases(
    "part",
    [
        Audio(b"RIFF", name="hello.wav"),
        Image(b"BM", media_type="image/bmp"),
        File(b"PK", name="a.docx"),
        File(b"\xff\xfe", name="a.txt"),
        File("https://example.org/a.csv"),
    ],
)
def test_the_error_names_media_that_the_api_does_not_accept(part: Any) -> None:
    with pytest.raises(MediaError) as caught:
        payload(PromptContext(user_input=UserInput((part,))))
    assert caught.value.name == part.alt


@for_cases("part", [Image("data:image/png;base64,%%%"), Image(Path("no/such/file.png"))])
def test_unreadable_media_are_refused(part: Any) -> None:
    with pytest.raises(MediaError):
        payload(PromptContext(user_input=UserInput((part,))))


def test_media_in_the_system_prompt_are_refused() -> None:
    with pytest.raises(MediaError) as caught:
        payload(layers=Layers(TextPrompt("{{ extra.logo }}")), extra={"logo": Image(PNG)})
    assert caught.value.name == "system"


def test_a_tool_can_answer_with_an_image_but_not_the_assistant() -> None:
    traffic = [
        Message("assistant", (Text("see "), Image(PNG, name="a.png")), tool_calls=(ToolCall("a", "camera"),)),
        Message("tool", (Text("taken"), Image(PNG)), tool_call_id="a"),
    ]
    made = payload(intermediate=traffic)
    assert made["messages"][1]["content"][0] == text("see [image: a.png]")
    (result,) = made["messages"][2]["content"]
    assert [block["type"] for block in result["content"]] == ["text", "image"]


def test_a_tool_without_description_or_type_is_still_an_object() -> None:
    tools = (ToolSpec("bare"), ToolSpec("odd", parameters={"properties": {}}, strict=True))
    made = payload(tools=tools)
    assert made["tools"][0] == {"name": "bare", "input_schema": {"type": "object", "properties": {}}}
    assert made["tools"][1]["input_schema"]["type"] == "object"
    assert made["tools"][1]["strict"] is True


def test_an_output_schema_is_sent() -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}}
    made = compose(Layers(), PromptContext(user_input="6 x 7?"), output_schema=schema).to_anthropic()
    forms()["output_config"].validate_python(made["output_config"])
    assert made["output_config"] == {"format": {"type": "json_schema", "schema": schema}}


def test_the_payload_is_a_prefix_of_the_payload_of_the_next_turn() -> None:
    layers = Layers(["Static.", TextPrompt("{{ extra.user }}")])
    ctx = PromptContext(user_input="0", extra={"user": "Ada"}, tools=(WEATHER,))
    before: list[str] = []
    for turn in range(5):
        ctx = ctx.evolve(user_input=UserInput(str(turn)))
        made = json.loads(json.dumps(compose(layers, ctx).to_anthropic()))
        now = [json.dumps(_unmarked(message)) for message in [*made["system"], *made["messages"]]]
        assert now[: len(before)] == before
        before = now
        ctx = ctx.evolve(conversation=ctx.conversation.append(ctx.user_input.message, Message("assistant", "ok")))


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value


def test_a_cut_composition_is_still_a_valid_request() -> None:
    history = [message for turn in range(20) for message in (Message("user", f"q{turn}"), *pair("c"))]
    ctx = PromptContext(user_input="now", conversation=history)
    for budget in range(20, 400, 20):
        made = compose(Layers("S", history=Size(cut="items")), ctx, budget=budget).to_anthropic()
        forms()["messages"].validate_python(made["messages"], strict=True)
        assert len(set(ids(made))) == len(ids(made))


PIECES = st.sampled_from(["", " ", "hi", "<|media:", "\0", "🍚", "user: x"])
ROLES = st.sampled_from(["system", "user", "assistant", "call"])


@law
@given(st.lists(st.tuples(ROLES, PIECES, st.sampled_from(["a", "b", "c.d"])), max_size=12), PIECES)
def test_the_types_of_the_sdk_accept_the_request_of_any_history(said: list[tuple[Any, str, str]], asked: str) -> None:
    history: list[Message] = []
    for role, content, name in said:
        history += pair(name, content) if role == "call" else [Message(role, content)]
    made = payload(PromptContext(user_input=asked or "x", conversation=history), Layers("Help."))
    found = ids(made)
    assert all(use == result for use, result in found)
    assert len(set(found)) == len(found) == sum(role == "call" for role, _, _ in said)


def test_the_official_client_sends_the_payload_unchanged() -> None:
    bodies: list[dict[str, Any]] = []

    def answer(request: Received) -> tuple[int, dict[str, str], bytes]:
        bodies.append(json.loads(request.body))
        usage = {"input_tokens": 1, "output_tokens": 1}
        said = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": usage}
        data = json.dumps({**said, "content": [text("yes")], "stop_reason": "end_turn"}).encode()
        return 200, {"content-type": "application/json"}, data

    ctx = PromptContext(user_input=UserInput(("see", Image(PNG))), intermediate=pair("a"), tools=(WEATHER,))
    made = compose(Layers("Help."), ctx, output_schema={"type": "object"}).to_anthropic()
    with answering(answer) as address:
        client = pytest.importorskip("anthropic").Anthropic(api_key="none", base_url=address, max_retries=0)
        reply = client.messages.create(model="m", max_tokens=1, **made)
    assert reply.content[0].text == "yes"
    assert bodies == [{"model": "m", "max_tokens": 1, **json.loads(json.dumps(made))}]


def test_blocks_of_the_payload_are_immutable() -> None:
    ctx = PromptContext(user_input="x", conversation=[Message("user", "before")])
    made: dict[str, Any] = compose(Layers("S"), ctx).to_anthropic()
    with pytest.raises(TypeError):
        made["messages"][0]["content"][0]["text"] = "y"


def test_a_url_source_of_any_class_is_passed_on() -> None:
    made = payload(PromptContext(user_input=UserInput((Image(Url("https://example.org/x")),))))
    assert made["messages"][0]["content"][0]["source"]["url"] == "https://example.org/x"


def test_the_payload_does_not_change_the_composition() -> None:
    composition: Composition = compose(Layers("S"), PromptContext(user_input="x"))
    before = composition.to_openai()
    composition.to_anthropic()
    assert composition.to_openai() == before
