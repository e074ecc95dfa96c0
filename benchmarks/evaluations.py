"""Evaluation of 10,000 rows with five worked examples and a model without latency.

The limit is the cost of the prompts alone: their creation and their form as chat messages.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from harness import Figure, figures, interleave, main
from icl import COLUMNS, DATASET, EXAMPLES, ROWS, TEMPLATE, TRAIN

from agentkit import ScriptedModel
from agentkit.prompts.evaluation import (
    ApiMetaTemplate,
    DatasetReader,
    InContext,
    PromptTemplate,
    chat_messages,
    run_sync,
)
from agentkit.prompts.example_selectors import StaticSelector

META = {
    "round": [{"role": "HUMAN"}, {"role": "BOT", "generate": True}],
    "reserved_roles": [{"role": "SYSTEM"}],
}


def evaluations(rounds: int) -> Iterable[Figure]:
    """Measure the prompts alone, and whole evaluations with and without a file of answers."""
    icl = InContext(
        DatasetReader(COLUMNS, "answer"),
        PromptTemplate(TEMPLATE, ice_token="</E>"),
        ice_template=PromptTemplate(EXAMPLES),
        retriever=StaticSelector(ids=[str(number) for number in range(len(TRAIN))]),
        train=TRAIN,
    )
    meta = ApiMetaTemplate(META)

    def prompts(n: int) -> None:
        for prompt in icl.prompts(DATASET[:n], meta):
            chat_messages(prompt.final)

    def run(n: int) -> None:
        run_sync(icl, DATASET[:n], ScriptedModel.repeat("B", keep=1), score="choice", concurrency=200)

    def run_with_file(n: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            model = ScriptedModel.repeat("B", keep=1)
            run_sync(icl, DATASET[:n], model, out=Path(folder, "out"), score="choice", concurrency=200)

    seconds = interleave({"prompts": prompts, "run": run, "run with out=": run_with_file}, ROWS, rounds)
    return figures("evaluation of few-shot rows", seconds, goals={"run": 1.5, "run with out=": 1.5})


if __name__ == "__main__":
    main(__doc__, {"evaluations": evaluations})
