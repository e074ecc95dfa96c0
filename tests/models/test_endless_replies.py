"""Reading tool calls out of a reply takes time in proportion to its length, whatever a model wrote."""

from __future__ import annotations

import pytest

from agentkit.models.text_tool_calls import TextToolCalls
from tests.effort import tries

CALL = '<tool_call>{"name": "add", "arguments": {"a": 1, "text": "%s"}}</tool_call>'


def read(text: str) -> tuple[str, TextToolCalls]:
    reader = TextToolCalls({"add"})
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
