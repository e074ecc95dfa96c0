"""Assembly of a reply from the pieces of a server: in any cut and in several dialects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import Usage
from agentkit.models.http.error_reply import ErrorReply
from agentkit.models.http.reader import ProtocolError
from agentkit.models.http.reply_reader import ReplyReader
from agentkit.prompts import Message, Thinking, ToolCall
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.write_openai_chat import openai_message, openai_writer


def read(*chunks: Any) -> ReplyReader:
    reader = ReplyReader()
    for piece in chunks:
        reader.add(piece)
    return reader


def delta(finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def call(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    """A tool-call delta without the keys whose value is None."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fields = (("index", index), ("id", id), ("function", function))
    return delta(tool_calls=[{key: value for key, value in fields if value is not None}])


def called(reader: ReplyReader) -> list[tuple[str, str]]:
    return [(made.name, made.arguments) for made in reader.reply("m").message.tool_calls]


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
json_objects = st.dictionaries(text, st.one_of(st.integers(), text, st.none()), max_size=3).map(json.dumps)
named_calls = st.lists(st.tuples(st.sampled_from(["add", "mul", "look_up"]), json_objects), min_size=1, max_size=4)


@given(named_calls, st.data())
def test_the_calls_are_the_same_for_any_cut_of_the_arguments(
    wanted: list[tuple[str, str]], data: st.DataObject
) -> None:
    reader = ReplyReader()
    dialect = data.draw(st.sampled_from(["standard", "no index", "index 0", "named again", "no id"]))
    for index, (name, arguments) in enumerate(wanted):
        at = sorted(data.draw(st.lists(st.integers(0, len(arguments)), max_size=4)))
        pieces = [arguments[start:stop] for start, stop in zip([0, *at], [*at, len(arguments)], strict=True)]
        number = {"no index": None, "index 0": 0}.get(dialect, index)
        id_ = None if dialect == "no id" else f"id{index}"
        reader.add(call(number, id_, name, pieces[0]))
        for piece in pieces[1:]:
            again = dialect == "named again"
            reader.add(call(number, id_ if again else None, name if again else None, piece))
    assert called(reader) == wanted


@given(named_calls)
def test_complete_calls_are_separated_in_any_dialect(wanted: list[tuple[str, str]]) -> None:
    for number, ids in ((0, True), (None, True), (None, False), (0, False)):
        chunks = [call(number, f"id{i}" if ids else None, *made) for i, made in enumerate(wanted)]
        assert called(read(*chunks)) == wanted


def test_usage_adds_up() -> None:
    assert Usage(1, 2, 3) + Usage(10, 20, 30) == Usage(11, 22, 33)


@given(st.lists(st.text(max_size=5), max_size=6))
def test_streamed_text_is_the_text_of_the_reply_and_can_be_sent(pieces: list[str]) -> None:
    reader = ReplyReader()
    new = [one for piece in pieces for one in reader.add(delta(content=piece))] + reader.end()
    heard = "".join([one.text for one in new])
    reader.add(delta("stop", content=""))
    assert heard == reader.reply("m").message.text == clean("".join(pieces))
    heard.encode()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "index",
                    "content",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "id",
                    "usage",
                    "error",
                    "refusal",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(st.lists(json_values, max_size=4))
def test_any_json_is_read_or_refused_as_a_protocol_error(chunks: list[Any]) -> None:
    reader = ReplyReader()
    try:
        for piece in chunks:
            reader.add(piece)
        message = reader.reply("m").message
    except (ProtocolError, ErrorReply):
        return
    message.text.encode()
    assert len({made.id for made in message.tool_calls}) == len(message.tool_calls)


def test_thinking_and_unknown_fields_of_a_model_are_stored_for_its_provider() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    extra = {"google": {"thought_signature": "s"}}
    owner = Owner("openai", "host", "m")
    whole = ReplyReader(owner)
    asked = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": extra}
    message = {"role": "assistant", "content": "hi", "reasoning_content": "hm", "reasoning_details": details}
    whole.add({"choices": [{"message": {**message, "annotations": [], "audio": None, "tool_calls": [asked]}}]})
    streamed = ReplyReader(owner)
    for piece in (
        delta(role="assistant", reasoning_content="h", reasoning_details=details),
        delta(reasoning_content="m", content="hi"),
        delta(tool_calls=[{"index": 0, **asked}]),
    ):
        streamed.add(piece)
    assert (
        whole.reply("m").message
        == streamed.reply("m").message
        == Message(
            "assistant",
            "hi",
            (ToolCall("a", "f", "{}", opaque={"openai@host/m": {"extra_content": extra}}),),
            thinking=(Thinking("hm", "openai@host"),),
            opaque={"openai@host/m": {"reasoning_details": details}},
        )
    )
    sent = openai_writer(owner)(whole.reply("m").message)
    assert sent == {**message, "tool_calls": [asked]}


def test_the_text_of_reasoning_details_is_the_thinking_unless_another_field_contains_it() -> None:
    text = {"type": "reasoning.text", "text": "r", "index": 0}
    hidden = {"type": "reasoning.encrypted", "data": "x"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"reasoning_details": [text]}, "r"),
        ({"reasoning_details": [text], "reasoning_content": ""}, "r"),
        ({"reasoning_details": [{**text, "signature": "s"}]}, "r"),
        ({"reasoning_details": [text, hidden, {**text, "index": 1}]}, "rr"),
        ({"reasoning_details": [{"type": "reasoning.summary", "summary": "r"}]}, "r"),
        ({"reasoning_details": [text], "reasoning": "whole"}, "whole"),
        ({"reasoning_details": [hidden]}, ""),
        ({"reasoning_details": []}, ""),
        ({"reasoning_details": "r"}, ""),
        ({"reasoning_details": [{"text": 5}, "r", None]}, ""),
    ]
    problems: list[Any] = []
    for fields, thought in cases:
        whole, streamed = ReplyReader(Owner("openai", "host", "m")), ReplyReader(Owner("openai", "host", "m"))
        message = {"role": "assistant", "content": "a", **fields}
        whole.add({"choices": [{"message": message}]})
        shown = [piece.text for piece in streamed.add(delta(**fields)) if piece.kind == "thinking"]
        streamed.add(delta(content="a"))
        # A whole message at the end repeats the pieces.
        assert not [piece for piece in streamed.add({"choices": [{"message": message}]}) if piece.kind == "thinking"]
        replies = [reader.reply("m").message for reader in (whole, streamed)]
        sent = openai_writer(Owner("openai", "host", "m"))(replies[0])
        found = ([reply.reasoning for reply in replies], "".join(shown), sent)
        if found != ([thought, thought], thought, {key: value for key, value in message.items() if value}):
            problems.append((fields, found))
    assert problems == []


def test_thinking_is_sent_back_in_the_field_in_which_it_arrived() -> None:
    message = read(delta(content="a", reasoning="r")).reply("m").message
    assert message.reasoning == "r"
    assert openai_message(message) == {"role": "assistant", "content": "a", "reasoning": "r"}


def test_stored_data_of_a_reply_can_be_stored_and_sent() -> None:
    pieces = delta(reasoning_content="\ud83d"), delta(reasoning_content="\ude00\ud83d", x={"y": "\ud83d"}, content="")
    message = read(*pieces).reply("m").message
    assert message.reasoning == "\U0001f600\ufffd"
    assert message.opaque == {"openai": {"x": {"y": "\ufffd"}}}
    nested: Any = []
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(ProtocolError):
        read(delta(content="a", x=nested)).reply("m")
