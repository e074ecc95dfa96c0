"""How a shipped configuration compares answers: its `eval_cfg`, as far as the scores here do the same."""

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

__all__ = ["score_of_cfg", "score_of_rows"]

_CHOICES = ("last_option_postprocess", "first_capital_postprocess")
_ACCURACY = ("AccEvaluator", "AccwithDetailsEvaluator")
_EVALUATORS = (*_ACCURACY, "EMEvaluator", "Gsm8kEvaluator")
_NUMBERS: Mapping[str | None, Reading] = {None: whole_text, "gsm8k_postprocess": last_number}
_GOLDS: Mapping[str | None, Reading] = {**_NUMBERS, "gsm8k_dataset_postprocess": gold_number}
_UNSUPPORTED = {
    "match_answer_pattern": "takes the first match of a pattern of its own",
    "first_option_postprocess": "tries some fifty phrases in turn",
}
"""What is refused, with how it finds a letter; `choice` finds the same in most answers."""
_POSTPROCESSORS = (*_CHOICES, "gsm8k_postprocess", "gsm8k_dataset_postprocess", *_UNSUPPORTED)
_LIKE = 0.88
"""How like a name another has to be: all of these end in the same word."""
_OFF = "score='none' asks the rows without scoring them"


def score_of_rows(score: Score | str | None, eval_cfg: object, icl: InContext, rows: Sequence[Row]) -> Score | None:
    """Return how the answers of rows are compared: as asked for, as an `eval_cfg` asks for, or of labels exactly.

    Raises:
        InContextError: The score is unknown, no row has a true answer, or one cannot be compared with.
    """
    found = score_of(score)
    if score == "none":
        return None
    if found is None:
        found = score_of_cfg(eval_cfg)
    if found is None and icl.mode == "ppl":
        found = exact_match
    if found is None or not len(rows):
        return found
    column = _answer_column(icl, rows)
    # A function of the caller decides itself what it compares; a dialogue has a list of true answers.
    is_ours = found in (choice_match, numeric_match) or isinstance(found, ShippedScore)
    if is_ours and icl.inferencer.mode is None:
        for number, row in enumerate(rows):
            _check_gold(found, number, row.get(column))
    return found


def _answer_column(icl: InContext, rows: Sequence[Row]) -> str:
    """Return the column of the true answers; warn of rows without one."""
    column = icl.reader.output_column
    if column is None:
        text = f"reader_cfg has no output_column, so nothing can be scored; name it; {_OFF}"
        raise InContextError(text, name="reader_cfg.output_column")
    without = [number for number, row in enumerate(rows) if row.get(column) is None]
    if len(without) == len(rows):
        split = icl.reader.test_split
        text = f"no row of {split} has a column {column!r}, so nothing can be scored; {_OFF}"
        raise InContextError(text, path=split, name=column)
    if without:
        some = f"{len(without)} of {len(rows)} rows have no {column!r} (the first is row {without[0]})"
        warn(InContextWarning(f"{some}; they are asked and not scored", name=column))
    return column


def _check_gold(score: Score, number: int, gold: Any) -> None:
    """Refuse a true answer with which nothing can be compared, before the row is asked."""
    try:
        if gold is not None:
            score("", gold)
    except InContextError as error:
        raise at_row(number, error) from error


def score_of_cfg(eval_cfg: object) -> Score | None:
    """Return the score that an `eval_cfg` asks for; None without one.

    Raises:
        InContextError: Nothing here scores like that.
    """
    if not isinstance(eval_cfg, Mapping) or not eval_cfg:
        return None
    named = _EvalCfg(
        *(_type(eval_cfg.get(key)) for key in ("evaluator", "pred_postprocessor", "dataset_postprocessor"))
    )
    is_plain = named.answers is None and named.golds is None
    if named.evaluator == "EMEvaluator" and is_plain:
        return _general_match
    if named.evaluator in _ACCURACY:
        if is_plain:
            return exact_match
        if named.answers in _CHOICES and named.golds in (None, *_CHOICES):
            return ShippedScore(
                _letter(named.answers, eval_cfg["pred_postprocessor"]),
                _letter(named.golds, eval_cfg.get("dataset_postprocessor")),
            )
    if named.evaluator == "Gsm8kEvaluator" and named.answers in _NUMBERS and named.golds in _GOLDS:
        return ShippedScore(_NUMBERS[named.answers], _GOLDS[named.golds], is_number=True)
    raise named.refusal()


class _EvalCfg(NamedTuple):
    """The names in an `eval_cfg`; None for those that it does not have."""

    evaluator: str | None
    answers: str | None
    """Postprocessor of the answers."""
    golds: str | None
    """Postprocessor of the true answers."""

    def refusal(self) -> InContextError:
        """Return the error for a combination that nothing here scores like."""
        if self.answers in _UNSUPPORTED:
            return InContextError(
                f"eval_cfg: {self.answers}: it {_UNSUPPORTED[self.answers]}, and that is not followed here; "
                "score='choice' takes the last letter after words such as `the answer is`, so the two may differ where "
                f"an answer names several; give score='choice', or a function; {_OFF}",
                name="eval_cfg.pred_postprocessor",
                value=self.answers,
            )
        names = [name for name in self if name is not None]
        meant = ""
        if near := self._near():
            meant = f"; did you mean {', '.join(map(repr, near))}?"
        return InContextError(
            f"eval_cfg: {', '.join(names) or 'no evaluator'}: nothing here scores like that{meant}; give score= exact, "
            f"choice or numeric, or a function; {_OFF}",
            name="eval_cfg",
            value=", ".join(names),
        )

    def _near(self) -> list[str]:
        """Return the known names that are most like the unknown ones."""
        near = []
        for name, names in zip(self, (_EVALUATORS, _POSTPROCESSORS, _POSTPROCESSORS), strict=True):
            if name is not None and name not in names and (other := similar(name, names, _LIKE)) is not None:
                near.append(other)
        return near


def _letter(name: str | None, cfg: Any) -> Reading:
    """Return how a postprocessor finds a letter."""
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
    """Return the name of a type that a configuration names, as text or as a class."""
    if cfg is None:
        return None
    kind = cfg
    if isinstance(cfg, Mapping):
        kind = cfg.get("type")
    if isinstance(kind, type):
        return kind.__name__
    return str(kind).rpartition(".")[2]


def _general_match(answer: str, gold: Any) -> float:
    """Compare what stands before the first line end, comma or full stop, without punctuation and articles."""
    golds = gold
    if not isinstance(gold, list | tuple):
        golds = (gold,)
    return float(_general(answer) in {_general(str(one)) for one in golds})


def _general(text: str) -> str:
    first = re.split(r"[\n.,]", text, maxsplit=1)[0]
    bare = re.sub(r"\b(?:a|an|the)\b", "", re.sub(r"[^\w\s]", "", first), flags=re.IGNORECASE)
    return " ".join(bare.split())
