"""Configuration files in the form of the suites, from the file to the score."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from agentkit import CompletionModel, OpenAIModel, ScriptedModel
from agentkit.model_evaluation.shipped_scores import score_of_cfg
from agentkit.prompts import evaluation
from agentkit.prompts.evaluation import InContextError, InContextWarning, choice_match, load_datasets
from tests.model_evaluation.evaluation_servers import answers, likely, texts_of
from tests.servers import ChatServer

GEN = """
from opencompass.openicl.icl_prompt_template import PromptTemplate
from opencompass.openicl.icl_retriever import FixKRetriever
from opencompass.openicl.icl_inferencer import GenInferencer
from opencompass.openicl.icl_evaluator import AccEvaluator
from opencompass.datasets import ExamDataset
from opencompass.utils.text_postprocessors import first_capital_postprocess

titles = {'colours': ['Colours', 'Farben'], 'sums': ['Sums', 'Summen']}
exam_datasets = []
for _split in ['val']:
    for _name in list(titles.keys()):
        _title = titles[_name][1]
        _question = f'Eine Frage zu {_title}.\\n{{question}}\\nA. {{A}}\\nB. {{B}}\\nAntwort: '
        exam_infer_cfg = dict(
            ice_template=dict(
                type=PromptTemplate,
                template=dict(
                    begin='</E>',
                    round=[dict(role='HUMAN', prompt=_question), dict(role='BOT', prompt='{answer}')]),
                ice_token='</E>',
            ),
            retriever=dict(type=FixKRetriever, fix_id_list=[0, 1]),
            inferencer=dict(type=GenInferencer),
        )
        exam_eval_cfg = dict(
            evaluator=dict(type=AccEvaluator), pred_postprocessor=dict(type=first_capital_postprocess))
        exam_datasets.append(
            dict(
                type=ExamDataset, path='data/exam', name=_name,
                abbr='exam-' + _name if _split == 'val' else 'exam-test-' + _name,
                reader_cfg=dict(
                    input_columns=['question', 'A', 'B'], output_column='answer', train_split='dev',
                    test_split=_split),
                infer_cfg=exam_infer_cfg, eval_cfg=exam_eval_cfg))
del _split, _name, _title
"""
PPL = """
from opencompass.openicl.icl_prompt_template import PromptTemplate
from opencompass.openicl.icl_retriever import ZeroRetriever
from opencompass.openicl.icl_inferencer import PPLInferencer
from opencompass.openicl.icl_evaluator import AccEvaluator
from opencompass.datasets import HFDataset

reader_cfg = dict(input_columns=['text'], output_column='label', test_split='train')
infer_cfg = dict(
    prompt_template=dict(
        type=PromptTemplate,
        template={
            0: dict(round=[dict(role='HUMAN', prompt='{text}'), dict(role='BOT', prompt='Bad.')]),
            1: dict(round=[dict(role='HUMAN', prompt='{text}'), dict(role='BOT', prompt='Good.')]),
        }),
    retriever=dict(type=ZeroRetriever),
    inferencer=dict(type=PPLInferencer))
eval_cfg = dict(evaluator=dict(type=AccEvaluator))
mood_datasets = [
    dict(type=HFDataset, path='json', abbr='mood', reader_cfg=reader_cfg, infer_cfg=infer_cfg, eval_cfg=eval_cfg)
]
"""


def dataset(folder: Path, source: str) -> dict[str, Any]:
    (folder / "shipped.py").write_text(source, "utf-8")
    return load_datasets(folder / "shipped.py")[0]


async def test_a_generating_configuration_from_the_file_to_the_score(server: ChatServer, tmp_path: Path) -> None:
    rows = [
        {"question": f"Which is {one}?", "A": one, "B": other, "answer": "A" if one < other else "B"}
        for one, other in (("blue", "red"), ("white", "black"), ("grey", "pink"), ("tan", "lime"))
    ]
    server.on("exam", answers(lambda texts: "B. of course" if "white" in texts[-1] or "grey" in texts[-1] else "A"))
    made = dataset(tmp_path, GEN)
    model = OpenAIModel("exam", base_url=server.url)
    splits = {"dev": rows[:2], "val": rows}
    with pytest.warns(InContextWarning) as caught:
        found = await evaluation.run(made, splits, model, out=tmp_path / "answers.jsonl")
    assert [warning.message.name for warning in caught if isinstance(warning.message, InContextWarning)] == ["0, 1"]
    assert [row.score for row in found.rows] == [1.0, 1.0, 0.0, 0.0] and found.score == 0.5
    first = next(asked for asked in server.to("exam") if "tan" in texts_of(asked)[-1])
    assert [message["role"] for message in first.body["messages"]] == ["user", "assistant"] * 2 + ["user"]
    assert texts_of(first)[0] == "Eine Frage zu Farben.\nWhich is blue?\nA. blue\nB. red\nAntwort: "


async def test_a_scoring_configuration_from_the_file_to_the_score(server: ChatServer, tmp_path: Path) -> None:
    rows = [{"text": "I laugh.", "label": 1}, {"text": "I cry.", "label": 0}, {"text": "I nod.", "label": 1}]

    def value(token: str, before: str) -> float:
        return -0.1 if (token.strip() == "Good") == ("laugh" in before) and token.strip() in ("Good", "Bad") else -2.0

    server.on("mood", likely(value))
    made = dataset(tmp_path, PPL)
    model = CompletionModel("mood", "base", base_url=server.url)
    found = await evaluation.run(made, {"train": rows}, model)
    assert [row.answer for row in found.rows] == ["1", "0", "0"] and found.score == pytest.approx(2 / 3)
    assert sorted(texts_of(asked)[0] for asked in server.to("mood"))[:2] == ["I cry.\nBad.", "I cry.\nGood."]


@pytest.mark.parametrize(
    ("eval_cfg", "answer", "score"),
    [
        ({"evaluator": {"type": "AccEvaluator"}}, "A", 1.0),
        (
            {"evaluator": {"type": "x.AccEvaluator"}, "pred_postprocessor": {"type": "first_capital_postprocess"}},
            "(A)",
            1,
        ),
        ({"evaluator": {"type": "EMEvaluator"}}, "the A. And more", 1.0),
        ({}, "A", None),
    ],
)
async def test_an_eval_cfg_determines_how_answers_are_compared(
    tmp_path: Path, eval_cfg: dict[str, Any], answer: str, score: float | None
) -> None:
    made = {**dataset(tmp_path, PPL), "eval_cfg": eval_cfg}
    made["infer_cfg"] = {"prompt_template": {"template": "{text}"}}
    found = await evaluation.run(made, {"train": [{"text": "x", "label": "A"}]}, ScriptedModel([answer]))
    assert found.score == score


async def test_an_unsupported_eval_cfg_is_named(tmp_path: Path) -> None:
    made = {**dataset(tmp_path, PPL), "eval_cfg": {"evaluator": {"type": "MATHEvaluator"}}}
    made["infer_cfg"] = {"prompt_template": {"template": "{text}"}}
    rows, model = {"train": [{"text": "x", "label": "1"}]}, ScriptedModel(["1"])
    with pytest.raises(InContextError) as caught:
        await evaluation.run(made, rows, model)
    assert [place for place, _ in caught.value.problems] == ["eval_cfg"]
    assert not model.requests
    assert (await evaluation.run(made, rows, model, score="none")).score is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = await evaluation.run(
            made, {"train": [{"text": "x", "label": "1"}]}, ScriptedModel(["1"]), score="numeric"
        )
    assert found.score == 1.0


def test_a_pattern_for_answers_is_refused_and_choice_replaces_it() -> None:
    cfg = {
        "evaluator": {"type": "AccEvaluator"},
        "pred_postprocessor": {"type": "match_answer_pattern", "answer_pattern": r"ANSWER: ([A-D])"},
    }
    with pytest.raises(InContextError) as caught:
        score_of_cfg(cfg)
    assert (caught.value.name, caught.value.value) == ("eval_cfg.pred_postprocessor", "match_answer_pattern")
    assert choice_match("ANSWER: A, or no: ANSWER: B", "B") == 1.0
