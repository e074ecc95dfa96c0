"""One dataset of a configuration with its rows: what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkit.model_evaluation.scores import Score
from agentkit.model_evaluation.shipped_scores import score_of_cfg
from agentkit_prompts.errors import InContextError, Problem, Problems, error_of_problems
from agentkit_prompts.evaluation.config.infer_cfg import read_cfg, shows_examples
from agentkit_prompts.evaluation.dataset_reader import Row
from agentkit_prompts.evaluation.in_context import InContext
from agentkit_prompts.ranking.embedder import Embedder

__all__ = ["configured"]


def configured(
    cfg: Mapping[str, Any],
    rows: Sequence[Row] | Mapping[str, Sequence[Row]],
    embedder: Embedder | None,
    score: Score | str | None = None,
) -> tuple[InContext, Sequence[Row]]:
    """Return the evaluation of a dataset's configuration, and the rows that it asks.

    Raises:
        InContextError: The configuration, or its rows, cannot be used; names everything that is wrong with its keys,
            those of the `eval_cfg` included where no `score` takes its place.
    """
    if not isinstance(cfg, Mapping):
        text = f"evaluation: expected an InContext or a configuration, got {type(cfg).__name__}"
        raise InContextError(text, name="evaluation", value=type(cfg).__name__)
    missing = [name for name in ("infer_cfg", "reader_cfg") if name not in cfg]
    if missing:
        raise InContextError(
            f"configuration: it has no {' and no '.join(missing)}; give one dataset, as `load_datasets` returns them, "
            f"with infer_cfg and reader_cfg; there is: {', '.join(map(str, cfg)) or 'nothing'}",
            name=", ".join(missing),
        )
    made: dict[str, Any] = {}
    problems: Problems = []
    try:
        made = read_cfg(cfg["infer_cfg"], cfg["reader_cfg"], embedder)
    except InContextError as error:
        problems += error.problems or [Problem("", str(error))]
    try:
        if score is None:
            score_of_cfg(cfg.get("eval_cfg"))
    except InContextError as error:
        problems.append(Problem("eval_cfg", str(error).removeprefix("eval_cfg: ")))
    if problems:
        raise error_of_problems(InContextError, "", problems)
    reader = made["reader"]
    if not isinstance(rows, Mapping):
        if reader.train_split != reader.test_split or not shows_examples(cfg["infer_cfg"]):
            return InContext(**made), rows
        rows = {reader.test_split: rows}
    if reader.train_split not in rows and not shows_examples(cfg["infer_cfg"]):
        rows = {**rows, reader.train_split: ()}
    train, test = reader.split(rows)
    return InContext(train=train, **made), test
