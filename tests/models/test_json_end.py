"""The end of a JSON value in pieces is found in one pass, for any cut of the pieces."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.models.http.json_end import JsonEnd
from agentkit.models.http.reply_reader import ReplyReader
from tests.prompts.laws import law

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text('a"\\{}[]é ', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('k"\\}', max_size=3), inner, max_size=3),
    max_leaves=6,
)
TEXTS = st.builds(json.dumps, VALUES) | st.text('{}[]"\\a1, :\n', max_size=12)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@law
@given(TEXTS, st.lists(st.integers(0, 60), max_size=6), st.sampled_from(["", " ", "\n", "x", "}", "{}"]))
def test_the_end_of_a_value_agrees_with_a_parser_of_all_pieces_so_far(text: str, cuts: list[int], more: str) -> None:
    text += more
    end, before = JsonEnd(), 0
    for cut in [*sorted(cuts), len(text)]:
        end.add(text[before:cut])
        before = max(before, cut)
        assert end.is_whole == is_json(text[:before])


def seconds(pieces: int, piece: str) -> float:
    """Return the time to read a call without ids whose name is repeated in every piece."""
    reader = ReplyReader("test")
    start = time.process_time()
    for at in range(pieces):
        arguments = ('{"a": "' if at == 0 else "") + piece
        call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
        reader.add({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    return time.process_time() - start


@pytest.mark.untraced
@pytest.mark.parametrize("piece", ["x" * 200, '{"}[' * 50])
def test_four_times_the_pieces_take_about_four_times_as_long(piece: str) -> None:
    few, many = (min(seconds(count, piece) for _ in range(2)) for count in (1_000, 4_000))
    assert many < 12 * few + 0.02
