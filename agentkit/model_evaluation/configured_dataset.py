"""One dataset of a configuration with its rows: what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkit.model_evaluation.scores import Score
from agentkit.model_evaluation.shipped_scores import score_of_cfg
from agentkit_prompts.errors import InContextError, Problem, Problems, brief, error_of_problems
from agentkit_prompts.evaluation.config.infer_cfg import read_cfg, shows_examples
from agentkit_prompts.evaluation.dataset_reader import Row
from agentkit_prompts.evaluation.in_context import InContext
from agentkit_prompts.ranking.embedder import Embedder

__all__ = ["check_arguments", "configured_dataset"]


def configured_dataset(
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
    parts = _parts(cfg, embedder, has_score=score is not None)
    reader, has_examples = parts["reader"], shows_examples(cfg["infer_cfg"])
    if not isinstance(rows, Mapping):
        # Without splits the rows are examples too if both are read from the same split.
        if reader.train_split != reader.test_split or not has_examples:
            return InContext(**parts), rows
        rows = {reader.test_split: rows}
    if reader.train_split not in rows and not has_examples:
        rows = {**rows, reader.train_split: ()}
    train, test = reader.split(rows)
    return InContext(train=train, **parts), test


def _parts(cfg: Mapping[str, Any], embedder: Embedder | None, *, has_score: bool) -> dict[str, Any]:
    """Return the arguments of `InContext`; refuse all that is wrong at once."""
    parts: dict[str, Any] = {}
    problems: Problems = []
    try:
        parts = read_cfg(cfg["infer_cfg"], cfg["reader_cfg"], embedder)
    except InContextError as error:
        problems += error.problems or [Problem("", str(error))]
    try:
        if not has_score:
            score_of_cfg(cfg.get("eval_cfg"))
    except InContextError as error:
        problems.append(Problem("eval_cfg", str(error).removeprefix("eval_cfg: ")))
    if problems:
        raise error_of_problems(InContextError, "", problems)
    return parts


def check_arguments(rows: object, model: object, counter: object) -> None:
    """Refuse arguments of an evaluation that are no rows, model or counter.

    Raises:
        InContextError: Names all of them.
    """
    splits = rows.items() if isinstance(rows, Mapping) else [("", rows)]
    problems: Problems = []
    for name, held in splits:
        if isinstance(held, str | bytes | Mapping) or not (hasattr(held, "__len__") and hasattr(held, "__getitem__")):
            place = "rows"
            if name:
                place = f"rows[{name!r}]"
            problems.append(Problem(place, f"expected a list of dicts, got {brief(held)}"))
    if not callable(getattr(model, "request", None)):
        text = f"expected a model, such as OpenAIModel(...), got {brief(model)}"
        problems.append(Problem("model", text))
    if not callable(getattr(counter, "count", None)):
        text = f"expected an object with a method `count`, got {brief(counter)}"
        problems.append(Problem("counter", text))
    if problems:
        raise error_of_problems(InContextError, "", problems)
