"""Running an evaluation: 10,000 rows with five worked examples and a model that answers at once, over its prompts.

The limit is what the prompts cost by themselves: made, and written as the messages of a chat.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from harness import Figure, figures, interleave, main
from icl import ASKED, COLUMNS, DATASET, EXAMPLES, ROWS, TRAIN

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
    """A whole run, with and without a file of answers, over its prompts."""
    icl = InContext(
        DatasetReader(COLUMNS, "answer"),
        PromptTemplate(ASKED, ice_token="</E>"),
        ice_template=PromptTemplate(EXAMPLES),
        retriever=StaticSelector(ids=[str(number) for number in range(len(TRAIN))]),
        train=TRAIN,
    )
    meta = ApiMetaTemplate(META)

    def prompts(n: int) -> None:
        for made in icl.prompts(DATASET[:n], meta):
            chat_messages(made.final)

    def run(n: int) -> None:
        run_sync(icl, DATASET[:n], ScriptedModel.repeat("B", keep=1), score="choice", concurrency=200)

    def kept(n: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            model = ScriptedModel.repeat("B", keep=1)
            run_sync(icl, DATASET[:n], model, out=Path(folder, "out"), score="choice", concurrency=200)

    taken = interleave({"prompts": prompts, "run": run, "run with out=": kept}, ROWS, rounds)
    return figures("evaluation of few-shot rows", taken, goals={"run": 1.5, "run with out=": 1.5})


if __name__ == "__main__":
    main(__doc__, {"evaluations": evaluations})
