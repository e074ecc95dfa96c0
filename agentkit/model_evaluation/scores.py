"""How an answer is compared with the true one: exactly, as a choice among letters, as a number, or as you say."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from agentkit.output.json_in_text import behind_thinking
from agentkit_prompts.errors import InContextError
from agentkit_prompts.names import nearest

__all__ = ["Score", "choice_match", "exact_match", "numeric_match", "score_of", "score_of_answers"]

Score: TypeAlias = Callable[[str, Any], float]
"""Takes the answer of the model and the true one; returns how right it is, 1 or True for wholly."""
ScoreName: TypeAlias = Literal["exact", "choice", "numeric", "none"]
"""With `none` rows are asked and not scored."""

_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s*/\s*\d+)?%?")
_CUES = (
    r"(?:answer|option|choice|correct one)(?:\s+(?:is|are|should be|would be))?\s*[:：]?\s*[\"'(\[*]*",
    r"(?:答案|选项|选择|应选|故选|因此选|所以选|选)\s*(?:应该)?(?:是|为)?\s*[:：]?\s*[\"'(（\[【*]*",
)
_MAX_TEXT = 100_000
"""Characters of an answer that are looked through, from its end."""


def exact_match(answer: str, gold: Any) -> float:
    """Return 1 when both are the same text, white space at the ends and runs of it aside; else 0.

    `gold` may be a list of answers that are all right.
    """
    golds = gold
    if not isinstance(gold, list | tuple | set):
        golds = (gold,)
    return float(_plain(answer) in {_plain(str(one)) for one in golds})


def choice_match(answer: str, gold: Any) -> float:
    """Return 1 when the letter that the answer chooses is `gold`, such as `B`; else 0.

    It is the letter of an answer that is nothing else, or that begins with one; else the last that follows words such
    as "the answer is"; else the only capital that stands alone.
    """
    wanted = str(gold).strip().strip("().:").upper()
    if not re.fullmatch(r"[A-Z]", wanted):
        text = f"choice: the true answer must be one letter, got {str(gold)[:40]!r}; use another score"
        raise InContextError(text, name="choice", value=str(gold))
    return float(_choice(answer) == wanted)


def numeric_match(answer: str, gold: Any) -> float:
    """Return 1 when the last number of the answer is that of `gold`, in any form (1,000 or 1e3 or 50%); else 0."""
    wanted, got = _number(str(gold).rpartition("####")[2]), _number(answer)
    if wanted is None:
        text = f"numeric: the true answer contains no number: {str(gold)[:40]!r}; use another score"
        raise InContextError(text, name="numeric", value=str(gold))
    return float(got is not None and math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-12))


_SCORES: Mapping[str, Score] = {"exact": exact_match, "choice": choice_match, "numeric": numeric_match}


def score_of(score: Score | str | None) -> Score | None:
    """Return the function that is meant; None for `none`, and where nothing is given.

    Raises:
        InContextError: It is neither a function nor one of the names.
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
    if found := re.match(r"[(\[（【*\s]*([A-Z])(?![\w'’])(?!\s[a-z])", text):
        return found[1]
    for cue in _CUES:
        if letters := re.findall(rf"{cue}([A-Z])(?![\w'’])", text, re.IGNORECASE):
            return str(letters[-1]).upper()
    alone = set(re.findall(r"(?<![\w'’])([A-Z])(?![\w'’])", text)) - ({"I"} if "I " in text else set())
    if len(alone) == 1:
        return str(alone.pop())
    return None


def _number(text: str) -> float | None:
    found = [one for one in _NUMBER.findall(text[-_MAX_TEXT:]) if any(map(str.isdigit, one))]
    if not found:
        return None
    plain = "".join(found[-1].replace(",", "").replace("−", "-").split())
    above, _, below = plain.rstrip("%").partition("/")
    try:
        value = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        return None
    if plain.endswith("%"):
        return value / 100
    return value


def score_of_answers(score: Score, answers: tuple[str, ...], gold: Any, *, is_dialogue: bool) -> float:
    """Return the score of an answer, without its thoughts; of a dialogue with a list of true ones the mean of turns."""
    # A thought often names the wrong options before the answer.
    answers = tuple([_without_thoughts(answer) for answer in answers])
    if is_dialogue and isinstance(gold, list | tuple):
        # A dialogue of which the last turn alone is asked has one answer, to the last true one.
        if len(answers) == 1:
            gold = gold[-1:]
        pairs = list(zip(answers, gold, strict=False))
        return sum(float(score(answer, true)) for answer, true in pairs) / len(answers)
    return float(score(answers[-1], gold))


def _without_thoughts(answer: str) -> str:
    """Return an answer without the thoughts before it; unchanged if it has none."""
    found = behind_thinking(answer)
    if found == answer:
        return answer
    return found.lstrip()
