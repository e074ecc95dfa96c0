"""Answers as models write them, and whether they are right."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.prompts.evaluation import InContextError, choice_match, exact_match, numeric_match


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        (" Paris\n", "Paris", 1),
        ("the  big\ncity", "the big city", 1),
        ("paris", "Paris", 0),
        ("12", 12, 1),
        ("b", ["a", "b"], 1),
        ("", "x", 0),
    ],
)
def test_exact(answer: str, gold: Any, score: float) -> None:
    assert exact_match(answer, gold) == score


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        ("B", "B", 1),
        ("B. because", "B", 1),
        ("(B)", "b", 1),
        ("**B**", "B", 1),
        ("A dog is what I see, so the answer is C.", "C", 1),
        ("The answer is A. No: the answer is (D)", "D", 1),
        ("I think it must be C", "C", 1),
        ("答案是B。", "B", 1),
        ("故选：C", "C", 1),
        ("因此选D", "D", 1),
        ("A or B, who knows", "A", 0),
        ("Because it is so", "B", 0),
        ("", "A", 0),
        ("the answer is beta", "B", 0),
        ("C", "B", 0),
    ],
)
def test_choice(answer: str, gold: str, score: float) -> None:
    assert choice_match(answer, gold) == score


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        ("The answer is 18.", "#### 18", 1),
        ("so 1,234 dollars", 1234, 1),
        ("-3.50", "-3.5", 1),
        ("1e3", "1000", 1),
        ("3/4", "0.75", 1),
        ("50%", "0.5", 1),
        ("12 then 13", "12", 0),
        ("none", "5", 0),
        ("x2", "2", 0),
        ("1/0", "5", 0),
        ("9" * 5000, "5", 0),
    ],
)
def test_numeric(answer: str, gold: Any, score: float) -> None:
    assert numeric_match(answer, gold) == score


def test_a_true_answer_that_cannot_be_compared_is_an_error() -> None:
    for match, answer, gold, name in ((choice_match, "B", "Paris", "choice"), (numeric_match, "5", "many", "numeric")):
        with pytest.raises(InContextError) as caught:
            match(answer, gold)
        assert (caught.value.name, caught.value.value) == (name, gold)
