"""Conversion of the `eval_cfg` of a shipped configuration to an equivalent score."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentkit.model_evaluation.scores import Score, choice_match, exact_match, numeric_match, score_of
from agentkit.model_evaluation.shipped_answers import (
    Reading,
    ShippedScore,
    first_capital,
    gold_number,
    last_number,
    last_option,
    whole_text,
)
from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning, brief
from agentkit_prompts.evaluation.dataset_reader import Row
from agentkit_prompts.evaluation.in_context import InContext
from agentkit_prompts.evaluation.problems import at_row
from agentkit_prompts.names import similar

_LETTER_POSTPROCESSORS = ("last_option_postprocess", "first_capital_postprocess")
_ACCURACY = ("AccEvaluator", "AccwithDetailsEvaluator")
_EVALUATORS = (*_ACCURACY, "EMEvaluator", "Gsm8kEvaluator")
_ANSWER_NUMBERS: Mapping[str | None, Reading] = {None: whole_text, "gsm8k_postprocess": last_number}
_GOLD_NUMBERS: Mapping[str | None, Reading] = {**_ANSWER_NUMBERS, "gsm8k_dataset_postprocess": gold_number}
_UNSUPPORTED = {
    "match_answer_pattern": "takes the first match of a custom pattern",
    "first_option_postprocess": "tries some fifty phrases in turn",
}
"""Unsupported postprocessors and their search for a letter; for most answers `choice` finds the same letter."""
_POSTPROCESSORS = (*_LETTER_POSTPROCESSORS, "gsm8k_postprocess", "gsm8k_dataset_postprocess", *_UNSUPPORTED)
_MIN_SIMILARITY = 0.88
"""Minimum similarity of a suggested name; high, because all names end with the same word."""
_NO_SCORE_ADVICE = "score='none' stores the answers without scores"


def score_of_rows(score: Score | str | None, eval_cfg: object, icl: InContext, rows: Sequence[Row]) -> Score | None:
    """Return the score of an evaluation: `score`, else the score of `eval_cfg`, else exact match of labels.

    Raises:
        InContextError: The score is unknown, no row has a true answer, or a true answer is invalid for the score.
    """
    function = score_of(score)
    if score == "none":
        return None
    if function is None:
        function = score_of_cfg(eval_cfg)
    if function is None and icl.mode == "ppl":
        function = exact_match
    if function is None or not len(rows):
        return function
    column = _answer_column(icl, rows)
    # A custom function may accept any true answer; a dialogue has a list of true answers.
    is_checked = function in (choice_match, numeric_match) or isinstance(function, ShippedScore)
    if is_checked and icl.inferencer.mode is None:
        for number, row in enumerate(rows):
            _check_gold(function, number, row.get(column))
    return function


def _answer_column(icl: InContext, rows: Sequence[Row]) -> str:
    """Return the column of the true answers; warn of rows without a true answer."""
    column = icl.reader.output_column
    if column is None:
        text = "reader_cfg: output_column is missing, so that answers cannot be scored; set output_column; "
        text += _NO_SCORE_ADVICE
        raise InContextError(text, name="reader_cfg.output_column")
    missing = [number for number, row in enumerate(rows) if row.get(column) is None]
    if len(missing) == len(rows):
        split = icl.reader.test_split
        text = f"no row of {split} has a column {column!r}, so that answers cannot be scored; {_NO_SCORE_ADVICE}"
        raise InContextError(text, path=split, name=column)
    if missing:
        text = f"{len(missing)} of {len(rows)} rows have no {column!r} (the first is row {missing[0]})"
        warn(InContextWarning(f"{text}; their answers are not scored", name=column))
    return column


def _check_gold(score: Score, number: int, gold: Any) -> None:
    """Refuse an invalid true answer before the first request."""
    try:
        if gold is not None:
            score("", gold)
    except InContextError as error:
        raise at_row(number, error) from error


def score_of_cfg(eval_cfg: object) -> Score | None:
    """Return the score that is equivalent to an `eval_cfg`; None without an `eval_cfg`.

    Raises:
        InContextError: No score is equivalent to the `eval_cfg`.
    """
    if not isinstance(eval_cfg, Mapping) or not eval_cfg:
        return None
    names = _EvalCfg(
        *(_type(eval_cfg.get(key)) for key in ("evaluator", "pred_postprocessor", "dataset_postprocessor"))
    )
    if names.answers is None and names.golds is None and names.evaluator in _PLAIN_SCORES:
        return _PLAIN_SCORES[names.evaluator]
    if (
        names.evaluator in _ACCURACY
        and names.answers in _LETTER_POSTPROCESSORS
        and names.golds in (None, *_LETTER_POSTPROCESSORS)
    ):
        return ShippedScore(
            _letter(names.answers, eval_cfg["pred_postprocessor"]),
            _letter(names.golds, eval_cfg.get("dataset_postprocessor")),
        )
    if names.evaluator == "Gsm8kEvaluator" and names.answers in _ANSWER_NUMBERS and names.golds in _GOLD_NUMBERS:
        return ShippedScore(_ANSWER_NUMBERS[names.answers], _GOLD_NUMBERS[names.golds], is_number=True)
    raise names.refusal()


class _EvalCfg(NamedTuple):
    """The names in an `eval_cfg`; None for missing names."""

    evaluator: str | None
    answers: str | None
    """Postprocessor of the answers."""
    golds: str | None
    """Postprocessor of the true answers."""

    def refusal(self) -> InContextError:
        """Return the error of a combination without an equivalent score."""
        if self.answers in _UNSUPPORTED:
            return InContextError(
                f"eval_cfg: {self.answers} is not supported: it {_UNSUPPORTED[self.answers]}; score='choice' takes the "
                "last letter after words such as `the answer is`, so the scores may differ if an answer names several "
                f"letters; pass score='choice', or a function; {_NO_SCORE_ADVICE}",
                name="eval_cfg.pred_postprocessor",
                value=self.answers,
            )
        names = ", ".join([name for name in self if name is not None])
        hint = ""
        if suggestions := self._suggestions():
            hint = f"; did you mean {', '.join(map(repr, suggestions))}?"
        return InContextError(
            f"eval_cfg: {names or 'no evaluator'}: no equivalent score{hint}; pass score= exact, choice or numeric, or "
            f"a function; {_NO_SCORE_ADVICE}",
            name="eval_cfg",
            value=names,
        )

    def _suggestions(self) -> list[str]:
        """Return a known name for each unknown name that is similar."""
        suggestions: list[str] = []
        for name, known_names in zip(self, (_EVALUATORS, _POSTPROCESSORS, _POSTPROCESSORS), strict=True):
            if name is None or name in known_names:
                continue
            suggestion = similar(name, known_names, _MIN_SIMILARITY)
            if suggestion is not None:
                suggestions.append(suggestion)
        return suggestions


def _letter(name: str | None, cfg: Any) -> Reading:
    """Return the function with which a postprocessor finds a letter."""
    if name is None:
        return whole_text
    if name == "first_capital_postprocess":
        return first_capital
    options = None
    if isinstance(cfg, Mapping):
        options = cfg.get("options")
    if not isinstance(options, str) or not options:
        text = f"eval_cfg: {name} needs `options`, such as 'ABCD', got {options!r:.60}"
        raise InContextError(text, name="eval_cfg.pred_postprocessor.options", value=brief(options))
    return last_option(options)


def _type(cfg: object) -> str | None:
    """Return the name of a type in a configuration, which is text or a class."""
    if cfg is None:
        return None
    kind = cfg
    if isinstance(cfg, Mapping):
        kind = cfg.get("type")
    if isinstance(kind, type):
        return kind.__name__
    return str(kind).rpartition(".")[2]


def _general_match(answer: str, gold: Any) -> float:
    """Return 1 if the texts up to the first line end, comma or full stop are equal, apart from punctuation."""
    golds = gold
    if not isinstance(gold, list | tuple):
        golds = (gold,)
    return float(_general(answer) in {_general(str(item)) for item in golds})


def _general(text: str) -> str:
    """Return the first clause of a text, without punctuation and articles."""
    first = re.split(r"[\n.,]", text, maxsplit=1)[0]
    bare = re.sub(r"\b(?:a|an|the)\b", "", re.sub(r"[^\w\s]", "", first), flags=re.IGNORECASE)
    return " ".join(bare.split())


_PLAIN_SCORES: Mapping[str | None, Score] = {"EMEvaluator": _general_match, **dict.fromkeys(_ACCURACY, exact_match)}
"""Scores of evaluators without postprocessors."""
