"""Reading tool calls of any reply takes time in proportion to its length."""

from __future__ import annotations

from collections.abc import Iterable
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.models.anthropic.anthropic_reader import AnthropicReader
from agentkit.models.completion.functionary import FunctionaryReply
from agentkit.models.completion.text_tool_calls import TextToolCalls
from agentkit.models.http.reader import Reader
from agentkit.models.http.reply_reader import ReplyReader
from agentkit.models.openai.responses_reader import ResponsesReader
from agentkit_prompts.chat_templates.tool_calls.argument_types import typed
from tests.cases import collected
from tests.effort import spread, thinned

CALL = '<tool_call>{"name": "add", "arguments": {"a": 1, "text": "%s"}}</tool_call>'


def read(text: str) -> tuple[str, TextToolCalls]:
    reader = TextToolCalls({"add": {}})
    shown = reader.add(text)
    return shown + reader.end(), reader


@pytest.mark.parametrize(
    "opening",
    thinned(
        [
            "<tool_call>",
            "<tool_call>{",
            '<tool_call>{"name": "',
            '<tool_call>["',
            "<function=a>[",
            "[TOOL_CALLS][",
            "<tool_call>[{}",
        ]
    ),
)
def test_openings_without_a_call_stay_text_and_the_call_after_them_is_read(opening: str) -> None:
    times = 4_000
    text, reader = read(opening * times + "\n")
    assert (text, reader.calls) == (opening * times + "\n", [])
    text, reader = read(opening * 1_000 + "\n" + CALL % "x")
    assert [call.name for call in reader.calls] == ["add"]


def test_a_call_of_any_length_is_read() -> None:
    failures: list[str] = []
    for length in [*range(940, 1_030), 4_000, 4_090, 100_000]:
        with collected(failures, length):
            text, reader = read("Look: " + CALL % ("\\u00e9" * (length // 6) + "x" * (length % 6)))
            assert text == "Look: "
            assert len(reader.calls) == 1
    assert failures == []


def in_pieces(pieces: Iterable[str]) -> tuple[str, list[tuple[str, str]]]:
    reader = TextToolCalls({"add": {}})
    shown = "".join([reader.add(piece) for piece in pieces]) + reader.end()
    return shown, [(call.name, call.arguments) for call in reader.calls]


@pytest.mark.parametrize(
    ("opening", "piece"),
    spread(
        [
            ("", " "),
            ("", "\n"),
            ("", ""),
            ("{", " "),
            ("[", "["),
            ("<tool_call>", " "),
            ("x", "<"),
            ("", "<tool_call"),
            ("", " <"),
        ],
        5,
    ),
)
def test_pieces_take_time_in_proportion_to_their_number(opening: str, piece: str) -> None:
    def seconds(count: int) -> float:
        pieces = [opening, *[piece] * count]
        start = process_time()
        assert in_pieces(pieces)[0] == "".join(pieces)
        return process_time() - start

    seconds(1_000)
    small, large = (min(seconds(count) for _ in range(3)) for count in (3_000, 24_000))
    assert large / small < 32  # 8 times as many; quadratic time would be 64 times as long


INVOKED = '<minimax:tool_call><invoke name="add"><parameter name="b">'


@pytest.mark.parametrize(
    ("opening", "behind", "after"),
    [
        (INVOKED, "</parameter>", "</invoke>x"),
        (INVOKED + "</parameter>", '<parameter name="c">', "</parameter></invoke>x"),
        (INVOKED, '</parameter><parameter name="c">', "</parameter></invoke>x"),
        (INVOKED, '</parameter></invoke><invoke name="add">', "</invoke>x"),
        ("<think></think> ", "", ""),
    ],
)
def test_unclosed_calls_are_searched_once(opening: str, behind: str, after: str) -> None:
    def seconds(count: int) -> float:
        written = opening * count + behind * count + after
        start = process_time()
        assert read(written)[0] == written
        return process_time() - start

    seconds(100)
    small, large = (min(seconds(count) for _ in range(2)) for count in (500, 4_000))
    assert large / small < 30  # 8 times as long; quadratic time would be 64 times as long


def test_calls_of_another_form_are_read_after_unclosed_calls() -> None:
    inner = '<invoke name="add"><parameter name="b">1</parameter></invoke>'
    _, reader = read(f"<minimax:tool_call>{inner}x<minimax:tool_call>{inner}</minimax:tool_call>")
    assert [call.arguments for call in reader.calls] == ['{"b": 1}']


@pytest.mark.parametrize(
    ("make", "opening", "piece"),
    [
        (lambda: TextToolCalls({"add": {}}), "<think>x</think>", " "),
        (lambda: FunctionaryReply({"add": {}}), "", ">"),
    ],
    ids=["white space behind a thought", "marks of nobody"],
)
def test_pieces_that_may_start_a_call_take_time_in_proportion(make: Any, opening: str, piece: str) -> None:
    def seconds(count: int) -> float:
        reader, pieces = make(), [opening, *[piece] * count]
        start = process_time()
        shown = "".join([reader.add(one) for one in pieces]) + reader.end()
        taken = process_time() - start
        assert shown == "".join(pieces)
        return taken

    seconds(1_000)
    small, large = (min(seconds(count) for _ in range(2)) for count in (3_000, 48_000))
    assert large / small < 80


def test_a_schema_with_many_references_to_itself_is_read_once() -> None:
    root = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 5 + [{"type": "integer"}]}}}
    start = process_time()
    assert typed("1", {"$ref": "#/$defs/a"}, root) == 1
    assert typed("x", {"$ref": "#/$defs/a"}, root) == "x"
    assert process_time() - start < 2


@given(
    st.lists(
        st.sampled_from(
            [" ", "\n", "", "{", "}", "hi", "<", "<tool", "_call>", "</tool_call>", "[TOOL_CALLS]", ",", CALL % "x",
             '{"name": "add", "arguments": {}}', "[", "]", "<function=add>", "</function>"]
        ),
        max_size=12,
    )
)  # fmt: skip
def test_a_reply_is_read_the_same_with_any_cut(pieces: list[str]) -> None:
    whole = in_pieces(["".join(pieces)])
    assert in_pieces(pieces) == whole
    assert in_pieces("".join(pieces)) == whole


def calls(count: int) -> list[dict[str, Any]]:
    made = [{"id": f"c{n}", "function": {"name": "add", "arguments": "{}"}} for n in range(count)]
    return [{"choices": [{"message": {"tool_calls": made}}]}]


def thoughts(count: int) -> list[dict[str, Any]]:
    return [{"choices": [{"delta": {"reasoning_content": "I think, so. " * 8}}]}] * count


def details(count: int) -> list[dict[str, Any]]:
    return [{"choices": [{"delta": {"reasoning_details": [{"text": "x"}]}}]}] * count


@pytest.mark.parametrize("chunks", [calls, thoughts, details])
def test_calls_and_thoughts_take_time_in_proportion_to_their_number(chunks: Any) -> None:
    def seconds(count: int) -> float:
        reader, made = ReplyReader(), chunks(count)
        start = process_time()
        for chunk in made:
            reader.add(chunk)
        taken = process_time() - start
        reader.add({"choices": [{"delta": {"content": ""}}]})
        message = reader.reply("m").message
        assert message.tool_calls or message.reasoning
        return taken

    seconds(100)
    small, large = (min(seconds(count) for _ in range(2)) for count in (1_000, 16_000))
    assert large / small < 80  # 16 times as many; quadratic time would be 256 times as long


def test_the_stored_details_of_a_reply_do_not_change_the_data_of_the_server() -> None:
    (chunk,) = details(1)
    reader = ReplyReader()
    reader.add(chunk)
    reader.add({"choices": [{"delta": {"reasoning_details": [{"text": "y"}], "content": ""}}]})
    assert chunk == details(1)[0]
    (thought,) = reader.reply("m").message.thinking
    assert thought.opaque["openai"]["reasoning_details"] == [{"text": "x"}, {"text": "y"}]


Event = dict[str, Any]


def citations(count: int) -> tuple[Reader, list[Event]]:
    delta = {"type": "citations_delta", "citation": {"cited_text": "x"}}
    block: Event = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "x"}}
    return AnthropicReader(), [block] + [{"type": "content_block_delta", "index": 0, "delta": delta}] * count


def unnumbered_blocks(count: int) -> tuple[Reader, list[Event]]:
    return AnthropicReader(), [{"type": "content_block_start", "content_block": {"type": "text", "text": "x"}}] * count


def responses(kind: str, delta: str, *items: Event) -> tuple[Reader, list[Event]]:
    made: list[Event] = []
    for item in items:
        made.append({"type": f"response.{delta}.delta", "output_index": 0, "delta": "{" * 50})
        made.append({"type": "response.output_item.done", "output_index": 0, "item": {"type": kind, **item}})
    return ResponsesReader(), made


def messages_done(count: int) -> tuple[Reader, list[Event]]:
    return responses("message", "output_text", *[{}] * count)


def calls_done(count: int) -> tuple[Reader, list[Event]]:
    calls = [{"name": "add", "call_id": f"c{number}", "arguments": "{}"} for number in range(count)]
    return responses("function_call", "function_call_arguments", *calls)


def keys_of_an_item(count: int) -> tuple[Reader, list[Event]]:
    return responses("message", "output_text", *[{f"key{number}": 1} for number in range(count)])


def parts_of_an_item(count: int) -> tuple[Reader, list[Event]]:
    parts = [{"type": "output_text", "text": "x"}] * count
    begun = {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": parts}}
    ended = {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message"}}
    return ResponsesReader(), [begun, *[ended] * count]


def messages_in_one_reply(count: int) -> tuple[Reader, list[Event]]:
    piece = {"type": "response.output_text.delta", "delta": "x"}
    return ResponsesReader(), [{**piece, "output_index": number} for number in range(count)]


@pytest.mark.parametrize(
    ("made", "most"),
    [
        (citations, 24_000),
        (unnumbered_blocks, 4_000),
        (messages_done, 12_000),
        (calls_done, 12_000),
        (keys_of_an_item, 8_000),
        (messages_in_one_reply, 2_000),
        (parts_of_an_item, 2_000),
    ],
)
def test_events_take_time_in_proportion_to_their_number(made: Any, most: int) -> None:
    def seconds(count: int) -> float:
        reader, events = made(count)
        start = process_time()
        for event in events:
            reader.add(event)
        message = reader.reply("m").message
        taken = process_time() - start
        assert message.text or message.tool_calls
        return taken

    seconds(100)
    small, large = seconds(most // 16), seconds(most)
    assert large / max(small, 0.003) < 60  # 16 times as many; quadratic time would be 256 times as long


def test_citations_that_arrive_separately_follow_earlier_citations() -> None:
    reader = AnthropicReader()
    reader.add({"type": "content_block_start", "content_block": {"type": "text", "text": "x", "citations": [{"n": 1}]}})
    for number in (2, 3):
        reader.add({"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": {"n": number}}})
    assert reader.content()[0]["citations"] == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_partial_name_is_looked_up_and_not_compared_with_all_tools() -> None:
    def seconds(tools: int) -> float:
        reader = FunctionaryReply({f"tool_number_{number}": {} for number in range(tools)})
        start = process_time()
        for _ in range(1_000):
            reader.add(">>>tool")
        return process_time() - start

    assert min(seconds(2_000) for _ in range(3)) < max(seconds(20), 0.01) * 10  # a hundred times as many
