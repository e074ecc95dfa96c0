"""Reading tool calls out of a reply takes time in proportion to its length, whatever a model wrote."""

from __future__ import annotations

from collections.abc import Iterable
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.models.reply_reader import ReplyReader
from agentkit.models.text_tool_calls import TextToolCalls
from tests.effort import spread, tries

CALL = '<tool_call>{"name": "add", "arguments": {"a": 1, "text": "%s"}}</tool_call>'


def read(text: str) -> tuple[str, TextToolCalls]:
    reader = TextToolCalls({"add": {}})
    shown = reader.add(text)
    return shown + reader.end(), reader


@pytest.mark.parametrize(
    "opening",
    [
        "<tool_call>",
        "<tool_call>{",
        '<tool_call>{"name": "',
        '<tool_call>["',
        "<function=a>[",
        "[TOOL_CALLS][",
        "<tool_call>[{}",
    ],
)
def test_openings_that_are_no_calls_stay_text_and_the_call_behind_them_is_read(opening: str) -> None:
    times = tries(20_000, 100_000)
    text, reader = read(opening * times + "\n")
    assert (text, reader.calls) == (opening * times + "\n", [])
    text, reader = read(opening * 1_000 + "\n" + CALL % "x")
    assert [call.name for call in reader.calls] == ["add"]


@pytest.mark.parametrize("length", [*range(940, 1_030), 4_000, 4_090, 100_000])
def test_a_call_of_any_length_is_read(length: int) -> None:
    text, reader = read("Look: " + CALL % ("\\u00e9" * (length // 6) + "x" * (length % 6)))
    assert text == "Look: "
    assert len(reader.calls) == 1


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
    small, large = (min(seconds(count) for _ in range(3)) for count in (3_000, 48_000))
    assert large / small < 80  # 16 times as many; where each piece looks at all before it, 256 times as long


@given(
    st.lists(
        st.sampled_from(
            [" ", "\n", "", "{", "}", "hi", "<", "<tool", "_call>", "</tool_call>", "[TOOL_CALLS]", ",", CALL % "x",
             '{"name": "add", "arguments": {}}', "[", "]", "<function=add>", "</function>"]
        ),
        max_size=12,
    )
)  # fmt: skip
def test_a_reply_is_read_the_same_however_it_is_cut(pieces: list[str]) -> None:
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
        assert message.tool_calls or message.reasoning or message.opaque
        return taken

    seconds(100)
    small, large = (min(seconds(count) for _ in range(2)) for count in (1_000, 16_000))
    assert large / small < 80  # 16 times as many; where each piece looks at all before it, 256 times as long


def test_what_is_kept_of_a_reply_is_not_written_into_what_the_server_sent() -> None:
    (chunk,) = details(1)
    reader = ReplyReader()
    reader.add(chunk)
    reader.add({"choices": [{"delta": {"reasoning_details": [{"text": "y"}], "content": ""}}]})
    assert chunk == details(1)[0]
    assert reader.reply("m").message.opaque["openai"]["reasoning_details"] == [{"text": "x"}, {"text": "y"}]
