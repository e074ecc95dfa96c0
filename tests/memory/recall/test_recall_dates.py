"""Dates in questions, compared with the dates of turns."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit_memory.recall.dates import find_dates
from tests.cases import for_cases

NOW = datetime(2024, 5, 15, 13, 30, tzinfo=UTC).timestamp()  # a Wednesday


def at(*date: int) -> float:
    return datetime(*date, tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]


def nearness(text: str, *date: int) -> float:
    (when,) = find_dates(text, NOW)
    return when.nearness(at(*date))


@for_cases(
    ("question", "inside", "outside"),
    [
        ("What did we plan on 2023-07-04?", (2023, 7, 4, 12), (2023, 7, 5, 12)),
        ("What happened in 2023-07?", (2023, 7, 31, 23), (2023, 8, 2)),
        ("Who came on 4 July 2023?", (2023, 7, 4), (2023, 7, 3)),
        ("Who came on the 4th of July, 2023?", (2023, 7, 4), (2023, 7, 6)),
        ("Who came on July 4th, 2023?", (2023, 7, 4, 23), (2023, 7, 5, 1)),
        ("What did I buy in March 2022?", (2022, 3, 1), (2022, 4, 1, 1)),
        ("What did I buy in December 2022?", (2022, 12, 31, 23), (2023, 1, 1, 1)),
        ("What did I buy in 2022?", (2022, 12, 31), (2023, 1, 2)),
        ("What did she say in June?", (2020, 6, 30), (2020, 7, 2)),
        ("What did she say on June 3?", (2021, 6, 3), (2021, 6, 4, 1)),
        ("Where were we yesterday?", (2024, 5, 14), (2024, 5, 15, 1)),
        ("Where were we the day before yesterday?", (2024, 5, 13), (2024, 5, 14, 1)),
        ("What is on today?", (2024, 5, 15, 23), (2024, 5, 14)),
        ("What did I say last week?", (2024, 5, 6), (2024, 5, 13, 1)),
        ("What did I say last weekend?", (2024, 5, 11), (2024, 5, 10)),
        ("What did I say last month?", (2024, 4, 30), (2024, 5, 2)),
        ("What did I say this year?", (2024, 1, 1), (2023, 12, 30)),
        ("What is planned next month?", (2024, 6, 1), (2024, 7, 3)),
        ("What did I say last Tuesday?", (2024, 5, 14), (2024, 5, 7)),
        ("What did I say last Wednesday?", (2024, 5, 8), (2024, 5, 15, 12)),
        ("What is on next Wednesday?", (2024, 5, 22), (2024, 5, 15)),
        ("What is on this Friday?", (2024, 5, 17), (2024, 5, 10)),
        ("What do I do on Fridays, or on Friday?", (2023, 1, 6), (2023, 1, 7)),
        ("What broke 3 days ago?", (2024, 5, 12), (2024, 5, 15, 12)),
        ("What broke two weeks ago?", (2024, 5, 1), (2024, 5, 15)),
        ("What broke a year ago?", (2023, 5, 16), (2024, 5, 1)),
    ],
)
def test_a_date_is_near_messages_of_that_date(question: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    when = find_dates(question, NOW)[0]
    assert when.nearness(at(*inside)) == 1.0
    assert when.nearness(at(*outside)) < 1.0


def test_nearness_fades_within_days_on_both_sides() -> None:
    question = "What was on 4 July 2023?"
    assert 1.0 > nearness(question, 2023, 7, 6) > nearness(question, 2023, 7, 12) > 0.05
    assert nearness(question, 2023, 7, 2) == pytest.approx(math.exp(-2 / 7))
    assert nearness(question, 2024, 7, 4) < 1e-9


@for_cases(
    "question",
    [
        "How may I march there?",
        "May I ask?",
        "Mark the second one",
        "Is 12345 a number?",
        "What was on 31 February 2023, or on 2023-13-01?",
        "on 45 May",
        "",
        "5 cats and 7 dogs",
    ],
)
def test_text_without_a_date_has_no_dates(question: str) -> None:
    assert find_dates(question, NOW) == ()


def test_a_month_that_is_a_common_word_needs_a_context() -> None:
    assert nearness("What did I say in may?", 2024, 5, 3) == 1.0
    assert nearness("What did I say last march?", 2024, 3, 3) == 1.0


def test_several_and_repeated_dates_are_found() -> None:
    first, second = find_dates("In June 2023 or in July 2023, June 2023 rather", NOW)
    assert (first.nearness(at(2023, 6, 5)), second.nearness(at(2023, 7, 5))) == (1.0, 1.0)


def test_few_of_many_dates_of_a_pasted_text_are_compared() -> None:
    dates = find_dates(
        f"{'on 4 July ' * 40} {' '.join(f'2023-{month:02}-{day:02}' for month in (1, 2) for day in range(1, 29))}", NOW
    )
    assert len(dates) == len(set(dates)) == 32


@given(st.text(max_size=80), st.floats(allow_nan=False))
def test_any_text_and_any_clock_is_accepted(text: str, now: float) -> None:
    for when in find_dates(text + " last week, 29 February, on Monday, 3 days ago, yesterday, in June", now):
        assert 0.0 <= when.nearness(0.0) <= 1.0
        assert 0.0 <= when.nearness(1e300) <= 1.0
