"""The two tools of the command line's agent: right, bounded, and never more than arithmetic and a clock."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.cli.tools import calculate, current_time
from agentkit.tools import ToolError

NUMBERS = st.integers(-10_000, 10_000)


@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from("+-*"), st.sampled_from("+-*"))
def test_whole_numbers_are_worked_out_exactly(a: int, b: int, c: int, first: str, second: str) -> None:
    expression = f"({a} {first} ({b})) {second} ({c})"
    apply = {"+": Fraction.__add__, "-": Fraction.__sub__, "*": Fraction.__mul__}
    assert calculate(expression) == str(apply[second](apply[first](Fraction(a), Fraction(b)), Fraction(c)))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7 / 2", "3.5"),
        ("7 // 2", "3"),
        ("7 % 4", "3"),
        ("2^10", "1024"),
        ("2 ** 0.5", str(2**0.5)),
        ("-(-3)", "3"),
        ("+3", "3"),
        ("6 × 7 − 84 ÷ 2", "0.0"),
        (" 1 ", "1"),
        ("2 ** -1", "0.5"),
        ("1_000 * 2", "2000"),
    ],
)
def test_the_usual_spellings_are_understood(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "no arithmetic expression"),
        ("2 +", "no arithmetic expression"),
        ("\0", "no arithmetic expression"),
        ("1; 2", "no arithmetic expression"),
        ("(" * 150, "no arithmetic expression"),
        ("1 / 0", "has no value"),
        ("10.0 ** 400", "has no value"),
        ("9 ** 9 ** 9 ** 9", "too large"),
        ("2 ** 99999999999", "too large"),
        ("2 ** -99999999999", "too large"),
        ("9" * 100 + " * " + "9" * 90 + "** 6", "too large"),
        ("(-8) ** 0.5", "no real number"),
        ("True + 1", "'True' is not arithmetic"),
        ("'a' * 9", "not arithmetic"),
        ("1j * 1j", "not arithmetic"),
        ("__import__('os').system('true')", "not arithmetic"),
        ("().__class__", "not arithmetic"),
        ("[1 for _ in iter(int, 1)]", "not arithmetic"),
        ("1 << 99", "not arithmetic"),
        ("~1", "not arithmetic"),
        ("1 if 1 else 2", "not arithmetic"),
        ("1" * 201, "at most 200 are read"),
    ],
)
def test_everything_else_is_refused_in_words_a_model_can_read(expression: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        calculate(expression)


@given(st.text(st.sampled_from("0123456789.+-*/%()^ ej_~<"), max_size=60))
def test_no_expression_ends_in_anything_but_a_value_or_an_error_of_ours(expression: str) -> None:
    with suppress(ToolError):
        assert len(calculate(expression)) < 1000


def test_the_time_is_told_for_a_zone() -> None:
    told = current_time("Asia/Tokyo")
    day, _, stamp = told.partition(", ")
    moment = datetime.fromisoformat(stamp)
    assert moment.strftime("%A") == day
    assert stamp.endswith("+09:00")
    assert abs((moment - datetime.now(UTC)).total_seconds()) < 60
    assert current_time().endswith("+00:00")


@pytest.mark.parametrize("zone", ["Nowhere", "", "../../etc/passwd", "/etc/passwd", "a\0b", "Europe", "x" * 300])
def test_a_zone_that_does_not_exist_is_refused(zone: str) -> None:
    with pytest.raises(ToolError, match="is no time zone known here"):
        current_time(zone)
