"""Inputs of `agentkit eval`: datasets and models of a configuration file, and rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentkit.cli.options import utf8
from agentkit.cli.screen import note
from agentkit.errors import AgentDefinitionError
from agentkit.model_evaluation.prompt_sender import TextModel
from agentkit.model_evaluation.row_files import load_rows
from agentkit.model_evaluation.scores import score_of
from agentkit.model_evaluation.shipped_scores import score_of_cfg
from agentkit.models.model import Model
from agentkit.models.settings import ModelSettings, with_settings
from agentkit_prompts.errors import InContextError
from agentkit_prompts.names import nearest

_SAMPLING = ("temperature", "top_p", "top_k")
"""Options of a model that are settings with the same name."""
_SPLITS = ("train", "test")
"""Names that select a split in `--rows`, even if a dataset has the same name."""
_RATES = ("query_per_second", "request_rate")
"""Options of a model that limit its request rate."""
_READ_ELSEWHERE = ("type", "abbr", "meta_template")
"""Keys of a model that are no options: its class and name, and `meta_template`, which `meta_template_for` reads."""


def named_datasets(datasets: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the datasets of a configuration by name.

    Raises:
        InContextError: Two datasets have the same name.
    """
    by_name: dict[str, Mapping[str, Any]] = {}
    for number, dataset in enumerate(datasets):
        name = str(dataset.get("abbr") or f"dataset-{number}")
        if name in by_name:
            raise InContextError(f"several datasets have the name {name!r}; give each dataset a unique `abbr`")
        by_name[name] = dataset
    return by_name


def chosen_datasets(
    every: Mapping[str, Mapping[str, Any]], names: Sequence[str] | None
) -> dict[str, Mapping[str, Any]]:
    """Return the datasets of `--dataset` by name; all datasets without the option.

    Raises:
        InContextError: A dataset is unknown; the error names all unknown datasets.
    """
    selected = [utf8(name) for name in names or ()]
    unknown = [f"unknown dataset {name!r}{nearest(name, every)}" for name in selected if name not in every]
    if unknown:
        raise InContextError(f"--dataset: {'; '.join(unknown)}")
    if not selected:
        return dict(every)
    return {name: dataset for name, dataset in every.items() if name in selected}


def scores_by_dataset(options: Sequence[str] | None, every: Mapping[str, Any]) -> dict[str | None, str]:
    """Return the scores of `--score` by dataset; the key None has the score of all other datasets.

    Raises:
        InContextError: A dataset or a score is unknown, or a dataset has two scores.
    """
    scores: dict[str | None, str] = {}
    for text in options or ():
        dataset, mark, score = utf8(text).rpartition("=")
        name = None
        if mark:
            name = dataset
        if name is not None and name not in every:
            raise InContextError(f"--score {text}: unknown dataset {name!r}{nearest(name, every)}")
        if name in scores:
            raise InContextError(f"--score {text}: duplicate score; for one dataset write DATASET={score}")
        score_of(score)
        scores[name] = score
    return scores


def score_for(name: str, eval_cfg: object, scores: Mapping[str | None, str]) -> str | None:
    """Return the score of a dataset; None to use its `eval_cfg`."""
    default = scores.get(None)
    # A score of this dataset overrides the score of all datasets.
    if name in scores or default in (None, "none"):
        return scores.get(name, default)
    try:
        is_supported = score_of_cfg(eval_cfg) is not None
    except InContextError:
        return default
    if is_supported:
        note(f"{name}: scored by its eval_cfg; --score {name}={default} overrides it")
        return None
    return default


def meta_template_for(models: Sequence[Mapping[str, Any]], model: Model) -> Any:
    """Return the meta template of the models of a configuration.

    None, with a note, if the models have several meta templates or the meta template does not fit the model.
    """
    templates: list[Any] = []
    for entry in models:
        template = entry.get("meta_template")
        if template and template not in templates:
            templates.append(template)
    if not templates:
        return None
    if len(templates) > 1:
        note("no meta_template of the configuration is used: it has several")
        return None
    if isinstance(model, TextModel) or _is_of_api(templates[0]):
        return templates[0]
    note("no meta_template of the configuration is used: it is for a model that completes text")
    return None


def _is_of_api(meta: Any) -> bool:
    """True if a meta template names the roles of a chat API."""
    rounds = meta
    if isinstance(meta, Mapping):
        rounds = meta.get("round", ())
    return isinstance(rounds, list) and all(isinstance(part, Mapping) and "api_role" in part for part in rounds)


def with_model_entry(models: Sequence[Mapping[str, Any]], model: Model) -> Model:
    """Return a model with the settings of the only model of a configuration; print the ignored settings."""
    if len(models) != 1:
        if models:
            note(f"the configuration has {len(models)} models: their settings are ignored")
        return model
    settings: dict[str, Any] = {}
    ignored: list[str] = []
    for key, value in _options_of(models[0]).items():
        name = key.removeprefix("generation_kwargs.")
        if name in _SAMPLING:
            settings[name] = value
        elif key == "max_out_len":
            settings["max_tokens"] = value
        elif name == "do_sample" and value is False:
            settings["temperature"] = 0.0
        elif key in _RATES:
            ignored.append(f"{key} (use --rate)")
        else:
            ignored.append(key)
    if settings:
        try:
            model = with_settings(model, ModelSettings(**settings))
        except AgentDefinitionError as error:
            note(f"the settings of the configuration's model are ignored: {error}")
    if ignored:
        note(f"ignored settings of the configuration's model: {', '.join(ignored)}")
    return model


def _options_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a model that are not None; an option in `generation_kwargs` has the prefix of this name."""
    options = {str(key): value for key, value in entry.items() if key not in _READ_ELSEWHERE}
    generation = options.get("generation_kwargs")
    if isinstance(generation, Mapping) and generation:
        del options["generation_kwargs"]
        options |= {f"generation_kwargs.{key}": value for key, value in generation.items()}
    return {key: value for key, value in options.items() if value is not None}


def rows_of(
    options: Sequence[str] | None,
    datasets: Mapping[str, Mapping[str, Any]],
    every: Mapping[str, Mapping[str, Any]],
    config: Path,
    root: Path,
) -> dict[str, Any]:
    """Return the rows of each dataset, or its splits by name.

    Args:
        options: The values of `--rows`. If a folder has a subfolder with the name of a dataset, it has one for each
            dataset.
        datasets: The evaluated datasets. The `path` of a dataset is read if `options` has no rows for it.
        every: All datasets of the configuration; rows of other datasets are ignored.
        config: The configuration file, to which a `path` is relative.
        root: The folder that must contain each `path`.
    """
    rows = _RowSources()
    for text in options or ():
        rows.add(text, datasets, every)
    rows.check_files()
    rest = [name for name in datasets if name not in rows.named]
    if not rows.files and not rows.splits:
        return {**rows.named, **_each(rest, lambda name: _rows_of_path(datasets[name], config, root))}
    if rows.files:
        folder = Path(rows.files[0])
        if any((folder / name).is_dir() for name in rest):
            return {**rows.named, **_each(rest, lambda name: _rows_in(folder / name))}
    if len(datasets) > 1 or not rest:
        raise InContextError(
            f"--rows: {config} has {len(datasets)} datasets: name the dataset of the rows, as in "
            f"--rows {next(iter(datasets))}:test=FILE, name a folder with a folder of splits per dataset, or select "
            f"one dataset with --dataset; datasets: {', '.join(datasets)}"
        )
    return {rest[0]: rows.splits or load_rows(rows.files[0])}


class _RowSources:
    """Rows that the values of `--rows` name."""

    def __init__(self) -> None:
        self.files: list[str] = []
        """Files and folders of values without a name, such as `--rows FILE`."""
        self.splits: dict[str, Any] = {}
        """Splits of the only dataset, by name: `--rows test=FILE`."""
        self.named: dict[str, dict[str, Any]] = {}
        """Splits of a dataset, by its name: `--rows gsm8k:test=FILE`."""

    def add(self, text: str, datasets: Mapping[str, Any], every: Mapping[str, Any]) -> None:
        """Read the rows of a value of `--rows`; ignore a value whose dataset is not evaluated.

        Raises:
            InContextError: The dataset is unknown.
        """
        name, mark, path = text.partition("=")
        # A file may have an equals sign in its name.
        if not mark or Path(text).exists():
            self.files.append(text)
            return
        dataset, _, split = name.rpartition(":")
        if dataset and dataset not in every:
            raise InContextError(f"--rows {text}: unknown dataset {dataset!r}{nearest(dataset, every)}")
        is_dataset = name in every and name not in _SPLITS
        owner = dataset
        if is_dataset and not dataset:
            owner = name
        if owner in every and owner not in datasets:
            return
        rows = load_rows(path)
        if is_dataset and name in datasets:
            self._add_dataset(text, name, rows)
        elif isinstance(rows, dict):
            raise InContextError(f"--rows {text}: the folder has splits; expected a file with the rows of one split")
        else:
            self._add_split(name, dataset, split, rows)

    def _add_dataset(self, text: str, name: str, rows: Any) -> None:
        if name in self.named:
            raise InContextError(f"--rows {text}: duplicate rows of {name!r}")
        if not isinstance(rows, dict):
            rows = {"test": rows}
        self.named[name] = rows

    def _add_split(self, name: str, dataset: str, split: str, rows: Any) -> None:
        splits = self.splits
        if dataset:
            splits = self.named.setdefault(dataset, {})
        if split in splits:
            raise InContextError(f"--rows: duplicate split {name!r}")
        splits[split] = rows

    def check_files(self) -> None:
        """Refuse missing files, and several files without the names of their splits.

        Raises:
            InContextError: A file is missing, or a split has no name.
        """
        for text in self.files:
            if not Path(text).exists():
                raise InContextError(f"--rows {text}: the file or folder does not exist; check the path")
        if self.files and (self.splits or len(self.files) > 1):
            raise InContextError(f"--rows: several files require the names of their splits: test={self.files[0]}")


def _each(names: Sequence[str], read: Callable[[str], Any]) -> dict[str, Any]:
    """Return the rows of each dataset; raise one error with the problems of all datasets."""
    rows: dict[str, Any] = {}
    problems = []
    for name in names:
        try:
            rows[name] = read(name)
        except InContextError as error:
            problems.append(f"dataset {name}: {error}")
    if problems:
        raise InContextError("\n".join(problems))
    return rows


def _rows_in(folder: Path) -> Any:
    if not folder.is_dir():
        raise InContextError(f"missing folder {folder} with its rows, a file per split")
    return load_rows(folder)


def _rows_of_path(dataset: Mapping[str, Any], config: Path, root: Path) -> Any:
    """Return the rows of `path/name` of a dataset, or of its `path`."""
    path, part = dataset.get("path"), dataset.get("name")
    if not isinstance(path, str) or not path:
        raise InContextError("the dataset has no `path`; name its rows with --rows FILE")
    # As in OpenCompass and AISBench, a path is relative to the configuration file.
    place = config.parent / path
    _check_inside(place, root)
    if not isinstance(part, str) or not part:
        if not place.exists():
            raise InContextError(f"its path {path!r} is not next to {config}; name its rows with --rows FILE")
        return load_rows(place, root=root)
    inner = place / part
    _check_inside(inner, root)
    if inner.exists():
        return load_rows(inner, root=root)
    if place.is_file():
        return load_rows(place, root=root)
    try:
        return load_rows(place, root=root)
    except InContextError:
        raise InContextError(
            f"its path and name {f'{path}/{part}'!r} are no folder next to {config}, and {path!r} contains no rows; "
            "name its rows with --rows FILE"
        ) from None


def _check_inside(path: Path, root: Path) -> None:
    # A configuration of another author must not read arbitrary files of this machine.
    if not _is_inside(path, root):
        raise InContextError(f"its path {str(path)!r:.200} is outside of {root}; name its rows with --rows FILE")


def _is_inside(path: Path, root: Path) -> bool:
    try:
        return Path(os.path.realpath(path)).is_relative_to(root)
    except ValueError:
        # No file can have this name.
        return False
