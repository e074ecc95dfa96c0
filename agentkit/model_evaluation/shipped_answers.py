"""Scores that are equivalent to postprocessors and evaluators of OpenCompass."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentkit_prompts.errors import InContextError

Reading: TypeAlias = Callable[[str], str]
"""Function that returns the part of a text to compare; empty if the text does not contain it."""

_NEXT_QUESTION = "Question:"
"""Start of a further question that a base model generates after its answer."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_TOLERANCE = 1e-6
"""Maximum difference of numbers that count as equal."""


@dataclass(frozen=True, slots=True)
class ShippedScore:
    """Compares a part of the answer with a part of the true answer, as letters or as numbers."""

    answers: Reading
    golds: Reading
    is_number: bool = False

    def __call__(self, answer: str, gold: Any) -> float:
        """Return 1 if both parts are equal, else 0.

        Raises:
            InContextError: The true answer is invalid, so that no answer could equal it.
        """
        expected = self.golds(str(gold)).strip()
        if self.is_number:
            return float(_is_near(self.answers(answer), expected, gold))
        if not re.fullmatch("[A-Z]", expected):
            text = f"eval_cfg: the true answer must be one capital letter, got {str(gold)[:40]!r}"
            raise InContextError(text, name="eval_cfg", value=str(gold))
        return float(self.answers(answer) == expected)


def _is_near(answer: str, expected: str, gold: Any) -> bool:
    try:
        number = int(expected)
    except ValueError:
        text = f"eval_cfg: the true answer must be a whole number, got {str(gold)[-40:]!r}"
        raise InContextError(text, name="eval_cfg", value=str(gold)) from None
    try:
        return abs(float(answer) - number) < _TOLERANCE
    except (ValueError, OverflowError):
        return False


def whole_text(text: str) -> str:
    """Return a text unchanged, for evaluations without a postprocessor."""
    return text


def last_number(text: str) -> str:
    """Return the last number before a further question, with its sign and decimals."""
    numbers: list[str] = _NUMBER.findall(text.partition(_NEXT_QUESTION)[0])
    if numbers:
        return numbers[-1]
    return ""


def gold_number(text: str) -> str:
    """Return the text after the first `####` of a true answer, without commas; the whole text without `####`."""
    _, mark, number = text.partition("#### ")
    if mark:
        text = number.partition("#### ")[0]
    return text.replace(",", "")


def first_capital(text: str) -> str:
    """Return the first capital letter, also inside of a word."""
    return next(filter(str.isupper, text), "")


def last_option(options: str) -> Reading:
    """Return a function that returns the last character in `options`, also inside of a word."""
    return lambda text: next((char for char in reversed(text) if char in options), "")
