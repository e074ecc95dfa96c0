"""The evaluation and the rows of a dataset of a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkit.model_evaluation.scores import Score
from agentkit.model_evaluation.shipped_scores import score_of_cfg
from agentkit.models.model import MODEL_EXPECTED
from agentkit_prompts.errors import InContextError, Problem, Problems, brief, error_of_problems
from agentkit_prompts.evaluation.config.infer_cfg import read_cfg, shows_examples
from agentkit_prompts.evaluation.dataset_reader import Row
from agentkit_prompts.evaluation.in_context import InContext
from agentkit_prompts.ranking.embedder import Embedder


def configured_dataset(
    cfg: Mapping[str, Any],
    rows: Sequence[Row] | Mapping[str, Sequence[Row]],
    embedder: Embedder | None,
    score: Score | str | None = None,
) -> tuple[InContext, Sequence[Row]]:
    """Return the evaluation of a configured dataset, and its test rows.

    Raises:
        InContextError: The configuration or its rows are invalid. The error lists all problems of the configuration;
            problems of the `eval_cfg` only if `score` does not replace it.
    """
    if not isinstance(cfg, Mapping):
        text = f"evaluation: expected an InContext or a configuration, got {type(cfg).__name__}"
        raise InContextError(text, name="evaluation", value=type(cfg).__name__)
    missing = [name for name in ("infer_cfg", "reader_cfg") if name not in cfg]
    if missing:
        raise InContextError(
            f"configuration: {' and '.join(missing)} missing; pass one of the datasets that `load_datasets` returns, "
            f"with infer_cfg and reader_cfg; its keys: {', '.join(map(str, cfg)) or 'none'}",
            name=", ".join(missing),
        )
    arguments = _in_context_arguments(cfg, embedder, has_score=score is not None)
    reader, has_examples = arguments["reader"], shows_examples(cfg["infer_cfg"])
    if not isinstance(rows, Mapping):
        # Rows without splits are test rows; if the configuration uses one split for both, they are examples too.
        if reader.train_split != reader.test_split or not has_examples:
            return InContext(**arguments), rows
        rows = {reader.test_split: rows}
    if reader.train_split not in rows and not has_examples:
        rows = {**rows, reader.train_split: ()}
    train, test = reader.split(rows)
    return InContext(train=train, **arguments), test


def _in_context_arguments(cfg: Mapping[str, Any], embedder: Embedder | None, *, has_score: bool) -> dict[str, Any]:
    """Return the arguments of `InContext`.

    Raises:
        InContextError: The error lists all problems of the configuration.
    """
    arguments: dict[str, Any] = {}
    problems: Problems = []
    try:
        arguments = read_cfg(cfg["infer_cfg"], cfg["reader_cfg"], embedder)
    except InContextError as error:
        problems += error.problems or [Problem("", str(error))]
    try:
        if not has_score:
            score_of_cfg(cfg.get("eval_cfg"))
    except InContextError as error:
        problems.append(Problem("eval_cfg", str(error).removeprefix("eval_cfg: ")))
    if problems:
        raise error_of_problems(InContextError, "", problems)
    return arguments


def _is_list(value: object) -> bool:
    if isinstance(value, str | bytes | Mapping):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__getitem__")


def check_arguments(rows: object, model: object, counter: object) -> None:
    """Check the types of rows, model and counter.

    Raises:
        InContextError: Arguments have another type. The error lists all such arguments.
    """
    places = {"rows": rows}
    if isinstance(rows, Mapping):
        places = {f"rows[{name!r}]": split for name, split in rows.items()}
    problems: Problems = []
    for place, value in places.items():
        if not _is_list(value):
            problems.append(Problem(place, f"expected a list of dicts, got {brief(value)}"))
    if not callable(getattr(model, "request", None)):
        problems.append(Problem("model", f"{MODEL_EXPECTED}, got {brief(model)}"))
    if not callable(getattr(counter, "count", None)):
        text = f"expected an object with a method `count`, got {brief(counter)}"
        problems.append(Problem("counter", text))
    if problems:
        raise error_of_problems(InContextError, "", problems)
