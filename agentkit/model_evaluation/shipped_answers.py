"""What the postprocessors and evaluators of OpenCompass read of an answer, and when they call it right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentkit_prompts.errors import InContextError

__all__ = ["Reading", "ShippedScore", "first_capital", "gold_number", "last_number", "last_option", "whole_text"]

Reading: TypeAlias = Callable[[str], str]
"""Takes a text; returns what of it is compared, and nothing where that is not in it."""

_NEXT_QUESTION = "Question:"
"""Where a base model goes on with a question of its own."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class ShippedScore:
    """Compares what is read of an answer with what is read of the true one: as letters, or as numbers."""

    answers: Reading
    golds: Reading
    is_number: bool = False

    def __call__(self, answer: str, gold: Any) -> float:
        """Return 1 when both are the same, else 0.

        Raises:
            InContextError: The true answer is one that no answer could equal.
        """
        wanted = self.golds(str(gold)).strip()
        if self.is_number:
            return float(_is_near(self.answers(answer), wanted, gold))
        if not re.fullmatch("[A-Z]", wanted):
            text = f"eval_cfg: the true answer must be one capital letter, got {str(gold)[:40]!r}"
            raise InContextError(text, name="eval_cfg", value=str(gold))
        return float(self.answers(answer) == wanted)


def _is_near(answer: str, wanted: str, gold: Any) -> bool:
    try:
        number = int(wanted)
    except ValueError:
        text = f"eval_cfg: the true answer must be a whole number, got {str(gold)[-40:]!r}"
        raise InContextError(text, name="eval_cfg", value=str(gold)) from None
    try:
        return abs(float(answer) - number) < _TOLERANCE
    except (ValueError, OverflowError):
        return False


def whole_text(text: str) -> str:
    """Return the text."""
    return text


def last_number(text: str) -> str:
    """Return the last run of digits before a next question, with its sign and decimals."""
    numbers: list[str] = _NUMBER.findall(text.partition(_NEXT_QUESTION)[0])
    if numbers:
        return numbers[-1]
    return ""


def gold_number(text: str) -> str:
    """Return what stands behind the first `####` of a true answer, without commas; all of one that has none."""
    _, mark, behind = text.partition("#### ")
    return (behind.partition("#### ")[0] if mark else text).replace(",", "")


def first_capital(text: str) -> str:
    """Return the first capital, of whatever word."""
    return next((one for one in text if one.isupper()), "")


def last_option(options: str) -> Reading:
    """Return what finds the last character that is one of the options, inside a word too."""
    return lambda text: next((one for one in reversed(text) if one in options), "")
