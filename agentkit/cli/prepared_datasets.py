"""Datasets of `agentkit eval`: checked before the first request, and their prompts as text."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from agentkit.cli.eval_inputs import (
    score_for,
)
from agentkit.cli.screen import note, put, put_json
from agentkit.errors import AgentDefinitionError
from agentkit.model_evaluation.configured_dataset import configured_dataset
from agentkit.model_evaluation.prompt_sender import PromptSender
from agentkit.model_evaluation.scores import Score
from agentkit.model_evaluation.shipped_scores import score_of_rows
from agentkit.models.model import Model
from agentkit.models.settings import NO_SETTINGS, ModelSettings
from agentkit_prompts.context.wire.allowed_media import MediaFolder
from agentkit_prompts.errors import InContextError, InContextWarning
from agentkit_prompts.evaluation.dataset_reader import Row
from agentkit_prompts.evaluation.in_context import InContext
from agentkit_prompts.ranking.embedder import Embedder


class Media(TypedDict):
    """Options for the media of an evaluation."""

    root: MediaFolder
    allow_media: bool


class PreparedDataset(NamedTuple):
    """A validated dataset with its rows, score and settings."""

    sender: PromptSender
    rows: Sequence[Row]
    score: Score | None
    settings: ModelSettings
    warnings: Sequence[str]


def prepared_datasets(
    datasets: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, Any],
    model: Model,
    embedder: Embedder | None,
    score_names: Mapping[str | None, str],
    *,
    meta_template: Any,
    settings: ModelSettings,
    limit: int | None,
    is_shown: bool,
    media: Media,
) -> dict[str, PreparedDataset]:
    """Return the validated datasets.

    Raises:
        InContextError: Datasets or settings are invalid. The error lists the problems of all datasets.
    """
    problems = []
    prepared: dict[str, PreparedDataset] = {}
    for name, dataset in datasets.items():
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", InContextWarning)
                score: str | None = "none"
                if not is_shown:
                    score = score_for(name, dataset.get("eval_cfg"), score_names)
                icl, dataset_rows = configured_dataset(dataset, rows[name], embedder, score)
                icl.reader.check((), dataset_rows)
                dataset_rows = dataset_rows[:limit]
                # Only generated texts are sampled; a scored text is not generated.
                dataset_settings = NO_SETTINGS
                if icl.inferencer.asks in ("gen", "dialogue"):
                    dataset_settings = settings
                sender = PromptSender(icl, model, meta_template, dataset_settings, **media)
                row_score = None
                if not is_shown:
                    row_score = score_of_rows(score, dataset.get("eval_cfg"), icl, dataset_rows)
                if row_score is None and score is None:
                    note(f"{name}: without an eval_cfg, nothing is scored; add --score exact, choice or numeric")
            texts = [str(warning.message) for warning in caught]
            prepared[name] = PreparedDataset(sender, dataset_rows, row_score, dataset_settings, texts)
        except (InContextError, AgentDefinitionError) as error:
            problems.append(f"dataset {name}: {error}")
    if settings != NO_SETTINGS and prepared and all(dataset.settings == NO_SETTINGS for dataset in prepared.values()):
        problems.append("--temperature: texts are scored and none is generated, so it would be ignored; leave it out")
    if problems:
        raise InContextError(_with_options("\n".join(problems)))
    return prepared


def _with_options(text: str) -> str:
    """Return an error of the Python API with the options of the command instead of arguments."""
    text = text.replace("score= ", "--score ").replace(", or a function", "")
    text = text.replace("pass `embedder`", "name its model with --embedder KIND:MODEL")
    return re.sub(r"score='(\w+)'", r"--score \1", text)


def settings_of(prepared: Mapping[str, PreparedDataset]) -> dict[str, list[str]]:
    """Return the names of the datasets with equal settings, by the text of these settings."""
    by_settings: dict[str, list[str]] = {}
    for name, dataset in prepared.items():
        by_settings.setdefault(dataset.sender.shown_settings, []).append(name)
    return by_settings


def put_prompts(prepared: Mapping[str, PreparedDataset], count: int, *, as_json: bool) -> None:
    """Print the prompts of the first rows, as JSON or as text."""
    entries = [*_prompt_entries(prepared, count)]
    if as_json:
        put_json(entries)
        return
    for number, entry in enumerate(entries):
        if number:
            put("")
        label = ""
        if "label" in entry:
            label = f", label {entry['label']}"
        put(f"{entry['dataset']}, row {entry['row']}{label}:")
        prompt = entry["prompt"]
        if not isinstance(prompt, str):
            prompt = "\n".join(f"{part['role']}: {part['content']}" for part in prompt)
        put(prompt)


def _prompt_entries(prepared: Mapping[str, PreparedDataset], count: int) -> Iterator[dict[str, Any]]:
    """Yield the prompts of the first rows as JSON data, and print the warnings of each dataset."""
    for name, dataset in prepared.items():
        icl, rows = dataset.sender.icl, dataset.rows
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", InContextWarning)
            example_ids = icl.ids(rows)
            icl.warn_of_doubts(rows, example_ids)
            for number, ids in enumerate(example_ids[:count]):
                for label, prompt in _prompts(icl, rows, number, ids):
                    entry = {"dataset": name, "row": number, "prompt": dataset.sender.shown(prompt)}
                    if label is not None:
                        entry["label"] = label
                    yield entry
        note_once(name, [*dataset.warnings, *(str(warning.message) for warning in caught)])


def _prompts(icl: InContext, rows: Sequence[Row], number: int, ids: Sequence[int]) -> Iterator[tuple[Any, Any]]:
    """Yield the label, or None, and the prompt of a row: one prompt per scored label, the first of a dialogue."""
    labels = [None]
    if icl.mode == "ppl":
        labels = icl.labels(rows)
    for label in labels:
        if icl.inferencer.mode is not None:
            yield label, next(icl.requests(rows[number], ids))
        else:
            yield label, icl.prompt(rows[number], ids, label, keep_separator=False)


def note_once(name: str, texts: Sequence[str]) -> None:
    """Print the warnings of a dataset, each of them once."""
    for text in dict.fromkeys(texts):
        note(f"{name}: {text}")
