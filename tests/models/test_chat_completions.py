"""Putting a reply together from what servers send: the pieces may come in any cut and in several dialects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import Usage
from agentkit.models.http.error_reply import ErrorReply
from agentkit.models.http.reply_reader import ProtocolError, ReplyReader
from agentkit.prompts import Message, Thinking, ToolCall
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.write_openai_chat import openai_writer


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
    """One tool-call delta that leaves out what is None."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fields = (("index", index), ("id", id), ("function", function))
    return delta(tool_calls=[{key: value for key, value in fields if value is not None}])


def called(reader: ReplyReader) -> list[tuple[str, str]]:
    return [(made.name, made.arguments) for made in reader.reply("m").message.tool_calls]


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
json_objects = st.dictionaries(text, st.one_of(st.integers(), text, st.none()), max_size=3).map(json.dumps)
named_calls = st.lists(st.tuples(st.sampled_from(["add", "mul", "look_up"]), json_objects), min_size=1, max_size=4)


@given(named_calls, st.data())
def test_however_arguments_are_cut_the_calls_are_the_same(wanted: list[tuple[str, str]], data: st.DataObject) -> None:
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


def test_interleaved_calls_are_kept_apart_by_their_index() -> None:
    reader = read(
        call(0, "a", "add", '{"x"'), call(1, "b", "mul", '{"y"'), call(0, arguments=":1}"), call(1, arguments=":2}")
    )
    assert called(reader) == [("add", '{"x":1}'), ("mul", '{"y":2}')]


def test_interleaved_calls_without_an_index_are_kept_apart_by_their_id() -> None:
    reader = read(
        call(None, "a", "add", "["), call(None, "b", "mul", "("), call(None, "a", None, "]"), call(None, "b", None, ")")
    )
    assert called(reader) == [("add", "[]"), ("mul", "()")]


def test_a_name_repeated_with_every_piece_is_one_call() -> None:
    reader = read(call(0, None, "add", '{"a"'), call(0, None, "add", ": 1}"), call(0, None, "add", ""))
    assert called(reader) == [("add", '{"a": 1}')]


def test_a_name_in_pieces_is_joined() -> None:
    assert called(read(call(0, "a", "look"), call(0, name="_up"), call(0, arguments="{}"))) == [("look_up", "{}")]


def test_an_id_that_comes_late_is_kept() -> None:
    reader = read(call(0, None, "add"), call(0, "late", None, "{}"))
    assert [made.id for made in reader.reply("m").message.tool_calls] == ["late"]


def test_calls_without_an_id_or_with_the_same_id_get_ids_of_their_own() -> None:
    whole = {
        "choices": [{"message": {"tool_calls": [{"id": id_, "function": {"name": "f"}} for id_ in ("x", "", None)]}}]
    }
    again = {
        "choices": [{"message": {"tool_calls": [{"index": i, "id": "x", "function": {"name": "f"}} for i in (0, 1)]}}]
    }
    for reader, count in ((read(whole), 3), (read(again), 2)):
        ids = [made.id for made in reader.reply("m").message.tool_calls]
        assert ids[0] == "x"
        assert len(set(ids)) == count
        assert all(ids)


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [(None, "{}"), ("", "{}"), ({"a": "é"}, '{"a": "é"}'), ("not json", "not json"), (" {} ", " {} ")],
)
def test_arguments_are_kept_as_they_were_written(arguments: Any, kept: str) -> None:
    assert called(read(call(0, "a", "f", arguments))) == [("f", kept)]


@pytest.mark.parametrize(
    ("said", "told"),
    [("stop", "tool_calls"), (None, "tool_calls"), ("function_call", "tool_calls"), ("length", "length")],
)
def test_calls_that_were_not_cut_finish_with_tool_calls(said: str | None, told: str) -> None:
    assert read(call(0, "a", "f", "{}"), delta(said)).reply("m").finish_reason == told


def test_what_is_no_part_of_the_first_choice_is_passed_over() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}}]}
    nothing = [{"choices": []}, {"choices": None}, {"usage": None}, {"choices": [{"index": 0, "delta": None}]}, other]
    reader = read(*nothing, delta(role="assistant", content="ours", reasoning_content="thinking"), delta("stop"))
    assert reader.reply("m").message.text == "ours"


def test_content_parts_are_read_as_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": []}, "b"]
    assert read({"choices": [{"message": {"content": parts}}]}).reply("m").message.text == "ab"


@pytest.mark.parametrize(
    ("usage", "read_as"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2}, Usage(3, 2)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}}, Usage(3, 0, 1)),
        ({"prompt_tokens": 3.0, "prompt_tokens_details": None}, Usage(3)),
        ({"prompt_tokens": "3", "completion_tokens": -2}, Usage()),
        ({"prompt_tokens": float("inf"), "completion_tokens": float("nan")}, Usage()),
    ],
)
def test_usage_is_read_where_it_makes_sense(usage: Any, read_as: Usage) -> None:
    assert read(delta("stop", content="a"), {"choices": [], "usage": usage}).reply("m").usage == read_as


def test_usage_that_grows_from_chunk_to_chunk_counts_once() -> None:
    chunks = [{**delta(content="a"), "usage": {"prompt_tokens": 3, "completion_tokens": i}} for i in range(4)]
    assert read(*chunks).reply("m").usage == Usage(3, 3)


def test_usage_adds_up() -> None:
    assert Usage(1, 2, 3) + Usage(10, 20, 30) == Usage(11, 22, 33)


def test_a_reply_that_never_began_is_refused() -> None:
    with pytest.raises(ProtocolError):
        read({"choices": []}).reply("m")


def test_a_server_without_a_model_name_answers_as_the_one_asked() -> None:
    assert read(delta("stop", content="a")).reply("asked").model == "asked"


@given(st.lists(st.text(max_size=5), max_size=6))
def test_text_that_was_heard_is_the_text_of_the_reply_and_can_be_sent(pieces: list[str]) -> None:
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


def test_what_a_model_thought_and_what_is_unknown_is_kept_for_its_provider() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    extra = {"google": {"thought_signature": "s"}}
    whole = ReplyReader("host")
    asked = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra_content": extra}
    message = {"role": "assistant", "content": "hi", "reasoning_content": "hm", "reasoning_details": details}
    whole.add({"choices": [{"message": {**message, "annotations": [], "audio": None, "tool_calls": [asked]}}]})
    streamed = ReplyReader("host")
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
            (ToolCall("a", "f", "{}", opaque={"host": {"extra_content": extra}}),),
            thinking=(Thinking("hm", "host"),),
            opaque={"host": {"reasoning_details": details}},
        )
    )
    sent = openai_writer("host")(whole.reply("m").message)
    assert sent == {**message, "tool_calls": [asked]}


def test_the_name_under_which_a_model_thinks_is_the_name_it_hears_it_by() -> None:
    message = read(delta(content="a", reasoning="r")).reply("m").message
    assert message.reasoning == "r"
    assert openai_writer(None)(message) == {"role": "assistant", "content": "a", "reasoning": "r"}


def test_what_is_kept_can_be_stored_and_sent() -> None:
    pieces = delta(reasoning_content="\ud83d"), delta(reasoning_content="\ude00\ud83d", x={"y": "\ud83d"}, content="")
    message = read(*pieces).reply("m").message
    assert message.reasoning == "\U0001f600\ufffd"
    assert message.opaque == {"openai": {"x": {"y": "\ufffd"}}}
    nested: Any = []
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(ProtocolError):
        read(delta(content="a", x=nested)).reply("m")
