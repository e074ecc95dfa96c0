"""Results of the postprocessors of shipped configurations for typical answers of models."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit import ScriptedModel
from agentkit.model_evaluation.shipped_scores import score_of_cfg
from agentkit.prompts import evaluation
from agentkit.prompts.evaluation import InContextError

GSM8K = {
    "evaluator": {"type": "Gsm8kEvaluator"},
    "pred_postprocessor": {"type": "gsm8k_postprocess"},
    "dataset_postprocessor": {"type": "gsm8k_dataset_postprocess"},
}


def accuracy(postprocessor: str, **options: Any) -> dict[str, Any]:
    return {"evaluator": {"type": "AccEvaluator"}, "pred_postprocessor": {"type": postprocessor, **options}}


def scored(eval_cfg: dict[str, Any], answer: str, gold: Any) -> float:
    score = score_of_cfg(eval_cfg)
    assert score is not None
    return score(answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("The answer is 2\n\nQuestion: What is 5+6?\nThe answer is 11", "1+1\n#### 2", 1),
        ("The answer is 2\n\nQuestion: What is 5+6?\nThe answer is 11", "5+6\n#### 11", 0),
        ("The answer is 50%", "#### 50", 1),
        ("The answer is $50.", "#### 50", 1),
        ("The answer is \\boxed{50}", "#### 50", 1),
        ("The answer is **50**.", "#### 50", 1),
        ("(50)", "#### 50", 1),
        ("50.00", "#### 50", 1),
        ("x=50", "#### 50", 1),
        ("50/2", "#### 2", 1),
        ("1e3", "#### 3", 1),
        ("10-5", "#### -5", 1),
        ("The answer is 1,234", "#### 1,234", 0),
        ("The answer is 1234", "#### 1,234", 1),
        ("Question: 2", "#### 2", 0),
        ("many", "#### 2", 0),
        ("9" * 5000, "#### 2", 0),
        ("18", 18, 1),
    ],
)
def test_numbers_of_gsm8k(answer: str, gold: Any, right: float) -> None:
    assert scored(GSM8K, answer, gold) == right


@pytest.mark.parametrize(
    ("answer", "first", "last"),
    [
        ("B", "B", "B"),
        ("(B) because C is wrong", "B", "C"),
        ("The answer is B", "T", "B"),
        ("**B**\n\nQuestion: which?\nC", "B", "C"),
        ("b, or E", "E", ""),
        ("Answer: C. Because", "A", "B"),
        ("", "", ""),
    ],
)
def test_letters(answer: str, first: str, last: str) -> None:
    firsts = [one for one in "ABCDET" if scored(accuracy("first_capital_postprocess"), answer, one)]
    lasts = [one for one in "ABCDET" if scored(accuracy("last_option_postprocess", options="ABCD"), answer, one)]
    assert (firsts, lasts) == ([*first], [*last])


@pytest.mark.parametrize(
    ("eval_cfg", "gold"),
    [
        (accuracy("first_capital_postprocess"), "Paris"),
        (accuracy("first_capital_postprocess"), "b"),
        (GSM8K, "#### many"),
        (GSM8K, "#### 1.5"),
        ({**GSM8K, "dataset_postprocessor": None}, "1+1\n#### 2"),
    ],
)
async def test_true_answers_that_no_answer_could_equal_are_refused_before_any_request(
    eval_cfg: dict[str, Any], gold: str
) -> None:
    made = {
        "reader_cfg": {"input_columns": ["question"], "output_column": "answer"},
        "infer_cfg": {"prompt_template": {"template": "{question}"}},
        "eval_cfg": eval_cfg,
    }
    model = ScriptedModel.repeat("2")
    with pytest.raises(InContextError) as caught:
        await evaluation.run(made, [{"question": "q", "answer": gold}], model)
    assert (caught.value.path, caught.value.name, caught.value.value) == ("rows[0]", "eval_cfg", gold)
    assert not model.requests


def test_unsupported_parts_of_an_eval_cfg_are_refused() -> None:
    for eval_cfg, name, value in (
        (
            accuracy("first_option_postprocess", options="ABCD"),
            "eval_cfg.pred_postprocessor",
            "first_option_postprocess",
        ),
        (accuracy("last_option_postprocess"), "eval_cfg.pred_postprocessor.options", "None"),
        (
            {**GSM8K, "pred_postprocessor": {"type": "gsm8k_dataset_postprocess"}},
            "eval_cfg",
            "Gsm8kEvaluator, gsm8k_dataset_postprocess, gsm8k_dataset_postprocess",
        ),
    ):
        with pytest.raises(InContextError) as caught:
            score_of_cfg(eval_cfg)
        assert (caught.value.name, caught.value.value) == (name, value)


@pytest.mark.parametrize(
    ("score", "answer", "gold", "right"),
    [
        ("choice", "<think>It may be A or C.</think>\n\nB", "B", 1),
        ("exact", "<think>It may be A or C.</think>\n\nB", "B", 1),
        ("numeric", "<thinking>3</thinking>2", "2", 1),
        ("choice", "It may be A or C.</think>B", "B", 1),
        ("choice", "<think>The answer is B", "B", 0),
        (lambda answer, gold: answer == gold, "[THINK]A[/THINK] B", "B", 1),
        (lambda answer, gold: answer == gold, " B", "B", 0),
    ],
)
async def test_thoughts_before_an_answer_are_not_scored(score: Any, answer: str, gold: str, right: float) -> None:
    made = {
        "reader_cfg": {"input_columns": ["question"], "output_column": "answer"},
        "infer_cfg": {"prompt_template": {"template": "{question}"}},
    }
    row = {"question": "q", "answer": gold}
    found = await evaluation.run(made, [row], ScriptedModel([answer]), score=score)
    assert (found.score, found.rows[0].answer) == (right, answer)
