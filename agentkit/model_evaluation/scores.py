"""Scores of answers: exact match, choice of a letter, number, or a custom function."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from agentkit.output.json_in_text import text_after_thinking
from agentkit_prompts.errors import InContextError
from agentkit_prompts.names import nearest

Score: TypeAlias = Callable[[str, Any], float]
"""Function of the answer of the model and the true answer; returns the score, 1 or True for a correct answer."""
ScoreName: TypeAlias = Literal["exact", "choice", "numeric", "none"]
"""With `none` answers are not scored."""

_SPACE = re.compile(r"\s+")
# The patterns read answers of models: possessive quantifiers keep their time linear, for long runs of spaces too.
_NUMBER = re.compile(
    r"(?<![\w.])[-+−]?(?:(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d++)?|\.\d++)(?:[eE][-+]?\d++)?(?:\s*+/\s*+\d++)?%?"
)
_LETTER = r"([A-Z])(?![\w'’])"
_FIRST_LETTER = re.compile(rf"\A[(\[（【*\s]*+{_LETTER}(?!\s[a-z])")
_LETTERS_AFTER_CUES = (
    re.compile(
        r"(?:answer|option|choice|correct one)(?:\s++(?:is|are|should be|would be))?+\s*+(?:[:：]\s*+)?+[\"'(\[*]*+"
        + _LETTER,
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:答案|选项|选择|应选|故选|因此选|所以选|选)\s*+(?:应该)?+(?:是|为)?+\s*+(?:[:：]\s*+)?+[\"'(（\[【*]*+"
        + _LETTER,
        re.IGNORECASE,
    ),
)
_LETTER_AS_WORD = re.compile(rf"(?<![\w'’]){_LETTER}")
_MAX_TEXT = 100_000
"""Maximum characters of an answer that are searched, from its end."""


def exact_match(answer: str, gold: Any) -> float:
    """Return 1 if the answer equals `gold` except for white space; else 0.

    `gold` may be a list of correct answers.
    """
    golds = gold
    if not isinstance(gold, list | tuple | set):
        golds = (gold,)
    return float(_plain(answer) in {_plain(str(item)) for item in golds})


def choice_match(answer: str, gold: Any) -> float:
    """Return 1 if the letter that the answer chooses is `gold`, such as `B`; else 0.

    The chosen letter is the letter at the start of the answer; else the last letter after words such as "the answer
    is"; else the only capital letter that is a separate word.
    """
    expected = str(gold).strip().strip("().:").upper()
    if not re.fullmatch(r"[A-Z]", expected):
        text = f"choice: the true answer must be one letter, got {str(gold)[:40]!r}; use another score"
        raise InContextError(text, name="choice", value=str(gold))
    return float(_choice(answer) == expected)


def numeric_match(answer: str, gold: Any) -> float:
    """Return 1 if the last numbers of the answer and of `gold` have the same value, such as 1,000 and 1e3; else 0."""
    expected, actual = _number(str(gold).rpartition("####")[2]), _number(answer)
    if expected is None:
        text = f"numeric: the true answer contains no number: {str(gold)[:40]!r}; use another score"
        raise InContextError(text, name="numeric", value=str(gold))
    return float(actual is not None and math.isclose(actual, expected, rel_tol=1e-9, abs_tol=1e-12))


_SCORES: Mapping[str, Score] = {"exact": exact_match, "choice": choice_match, "numeric": numeric_match}


def score_of(score: Score | str | None) -> Score | None:
    """Return the score function of a name; None for `none` and None.

    Raises:
        InContextError: `score` is neither a function nor a known name.
    """
    if score is None or callable(score):
        return score
    if score == "none":
        return None
    if isinstance(score, str) and score in _SCORES:
        return _SCORES[score]
    names = get_args(ScoreName)
    raise InContextError(
        f"score: expected a function of (answer, gold) or a name, got {score!r:.60}{nearest(str(score), names)}",
        name="score",
        value=str(score),
    )


def _plain(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def _choice(answer: str) -> str | None:
    text = answer[-_MAX_TEXT:].strip()
    if first := _FIRST_LETTER.match(text):
        return first[1]
    for pattern in _LETTERS_AFTER_CUES:
        if letters := pattern.findall(text):
            return str(letters[-1]).upper()
    words = set(_LETTER_AS_WORD.findall(text))
    if "I " in text:
        words.discard("I")
    if len(words) == 1:
        return str(words.pop())
    return None


def _number(text: str) -> float | None:
    numbers = [number for number in _NUMBER.findall(text[-_MAX_TEXT:]) if any(map(str.isdigit, number))]
    if not numbers:
        return None
    plain = "".join(numbers[-1].replace(",", "").replace("−", "-").split())
    above, _, below = plain.rstrip("%").partition("/")
    try:
        value = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        return None
    if plain.endswith("%"):
        return value / 100
    return value


def score_of_answers(score: Score, answers: tuple[str, ...], gold: Any, *, is_dialogue: bool) -> float:
    """Return the score of the last answer, without thinking; for several true answers of a dialogue, the mean score."""
    # Thinking often contains wrong options before the answer.
    answers = tuple([_without_thinking(answer) for answer in answers])
    if is_dialogue and isinstance(gold, list | tuple):
        # If only the last turn of a dialogue is requested, its answer is compared with the last true answer.
        if len(answers) == 1:
            gold = gold[-1:]
        pairs = list(zip(answers, gold, strict=False))
        return sum(float(score(answer, true)) for answer, true in pairs) / len(answers)
    return float(score(answers[-1], gold))


def _without_thinking(answer: str) -> str:
    """Return an answer without the thinking before it."""
    rest = text_after_thinking(answer)
    if rest == answer:
        return answer
    return rest.lstrip()
