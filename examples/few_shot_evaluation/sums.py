# ruff: noqa: C408, D100
# A configuration as OpenCompass ships them: it is read, not run, and nothing of OpenCompass is needed.
from opencompass.datasets import SumsDataset
from opencompass.openicl.icl_evaluator import AccEvaluator
from opencompass.openicl.icl_inferencer import GenInferencer
from opencompass.openicl.icl_prompt_template import PromptTemplate
from opencompass.openicl.icl_retriever import FixKRetriever

sums_reader_cfg = dict(input_columns=["question"], output_column="answer")

sums_infer_cfg = dict(
    ice_template=dict(
        type=PromptTemplate,
        template=dict(
            begin="</E>",
            round=[
                dict(role="HUMAN", prompt="Question: {question}\nAnswer:"),
                dict(role="BOT", prompt="{answer}"),
            ],
        ),
        ice_token="</E>",
    ),
    retriever=dict(type=FixKRetriever, fix_id_list=[0, 1]),
    inferencer=dict(type=GenInferencer, max_out_len=512),
)

sums_eval_cfg = dict(evaluator=dict(type=AccEvaluator))

sums_datasets = [
    dict(
        abbr="sums",
        type=SumsDataset,
        path="rows",
        reader_cfg=sums_reader_cfg,
        infer_cfg=sums_infer_cfg,
        eval_cfg=sums_eval_cfg,
    )
]
