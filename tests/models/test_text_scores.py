"""The log probabilities of a text belong to its characters, for any form of the tokens of an endpoint."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.models import ModelReplyError
from agentkit.models.completion.text_score import EchoReader, TextScore
from tests.raising import raises


def score(text: str, tokens: list[Any], values: list[Any]) -> TextScore:
    reader = EchoReader(text, "m", "host")
    logprobs = {"tokens": tokens, "token_logprobs": values}
    reader.add({"choices": [{"index": 0, "text": text, "logprobs": logprobs}]})
    return reader.score()


@pytest.mark.parametrize(
    ("text", "tokens", "cut"),
    [
        ("A cat", ["A", " cat", "!"], ["A", " cat"]),
        ("A cat", ["A", " cat"], ["A", " cat"]),
        ("A cat", ["<s>", "A", " cat", "!"], ["", "A", " cat"]),
        ("A cat", ["<|begin_of_text|>", "A", " cat", "!"], ["", "A", " cat"]),
        ("A cat", ["▁A", "▁cat", "!"], ["A", " cat"]),
        ("A cat", ["<s>", " A", " cat", "!"], ["", "A", " cat"]),
        ("A\ncat", ["A", "Ċ", "cat", "Ġ!"], ["A", "\n", "cat"]),
        ("日本です", ["日", "\ufffd", "\ufffd", "です", "!"], ["日", "本", "", "です"]),
        ("né", ["n", "\ufffd", "\ufffd", "!"], ["n", "é", ""]),
        ("né!", ["<s>", "n", "bytes:\\xc3", "bytes:\\xa9", "!", "x"], ["", "n", "é", "", "!"]),
        ("né!", ["n", "", "é", "!", "x"], ["n", "", "é", "!"]),
    ],
)
def test_the_tokens_of_an_echo_are_cut_at_the_start_of_the_text(text: str, tokens: list[str], cut: list[str]) -> None:
    found = score(text, tokens, [None, *(-float(number) for number in range(1, len(tokens)))])
    assert list(found.tokens) == cut and "".join(cut) == text
    assert found.total() == -sum(range(1, len(cut))) and found.size() == len(cut)
    last = len(text) - len(cut[-1])  # the start of the last token with a character
    if cut[-1]:
        assert (found.total(last), found.size(last)) == (-(len(cut) - 1), 1)


@pytest.mark.parametrize(
    ("tokens", "values"),
    [
        (["Other", " text"], [None, -1.0]),
        (["A", " dog", "!"], [None, -1.0, -2.0]),
        (["A", " c"], [None, -1.0]),
        (["A", None], [None, -1.0]),
        (["A", " cat"], [None, None]),
        (["A", " cat"], [None, True]),
    ],
)
def test_log_probabilities_of_another_text_are_refused(tokens: list[Any], values: list[Any]) -> None:
    with raises(ModelReplyError, name="logprobs"):
        score("A cat", tokens, values)
