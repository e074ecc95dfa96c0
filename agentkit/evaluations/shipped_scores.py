"""How a shipped configuration compares answers: its `eval_cfg`, as far as the scores here do the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentkit.evaluations.scores import Score, choice_match, exact_match, numeric_match
from agentkit_prompts.errors import InContextWarning, warn

__all__ = ["score_of_cfg"]

_CHOICES = ("first_option_postprocess", "last_option_postprocess", "first_capital_postprocess")
_ACCURACY = ("AccEvaluator", "AccwithDetailsEvaluator")
_NUMBERS = ("gsm8k_postprocess", "gsm8k_dataset_postprocess", None)


def score_of_cfg(eval_cfg: object) -> Score | None:
    """Return the score that an `eval_cfg` asks for; None, with a warning that names it, where it is unknown here."""
    if not isinstance(eval_cfg, Mapping) or not eval_cfg:
        return None
    evaluator, answers, golds = (
        _type(eval_cfg.get(name)) for name in ("evaluator", "pred_postprocessor", "dataset_postprocessor")
    )
    if evaluator in _ACCURACY and answers is None and golds is None:
        return exact_match
    if evaluator in _ACCURACY and answers in _CHOICES and golds in (None, *_CHOICES):
        return choice_match
    if evaluator == "EMEvaluator" and answers is None and golds is None:
        return _general_match
    if evaluator == "Gsm8kEvaluator" and answers in _NUMBERS and golds in _NUMBERS:
        return numeric_match
    named = ", ".join(name for name in (evaluator, answers, golds) if name)
    warn(f"eval_cfg: {named}: nothing here scores like that, so answers are not scored; give score=", InContextWarning)
    return None


def _type(cfg: object) -> str | None:
    if cfg is None:
        return None
    kind = cfg.get("type") if isinstance(cfg, Mapping) else cfg
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]


def _general_match(answer: str, gold: Any) -> float:
    """Compare what stands before the first line end, comma or full stop, without punctuation and articles."""
    golds = gold if isinstance(gold, list | tuple) else (gold,)
    return float(_general(answer) in {_general(str(one)) for one in golds})


def _general(text: str) -> str:
    first = re.split(r"[\n.,]", text, maxsplit=1)[0]
    bare = re.sub(r"\b(?:a|an|the)\b", "", re.sub(r"[^\w\s]", "", first), flags=re.IGNORECASE)
    return " ".join(bare.split())
