"""What `agentkit eval` reads: datasets and models of a configuration file, and rows."""

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

__all__ = [
    "chosen_datasets",
    "meta_template_for",
    "named_datasets",
    "rows_of",
    "score_for",
    "scores_by_dataset",
    "with_model_entry",
]

_SAMPLING = ("temperature", "top_p", "top_k")
_SPLITS = ("train", "test")
"""In front of rows they are splits, also where a dataset is called so."""
_RATES = ("query_per_second", "request_rate")
_NAMES = ("type", "abbr", "meta_template")
"""Keys of a model that say what it is, and the one that is followed elsewhere."""


def named_datasets(datasets: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the datasets of a configuration by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for number, one in enumerate(datasets):
        name = str(one.get("abbr") or f"dataset-{number}")
        if name in found:
            raise InContextError(f"several datasets are called {name!r}; give each an `abbr` of its own")
        found[name] = one
    return found


def chosen_datasets(
    every: Mapping[str, Mapping[str, Any]], names: Sequence[str] | None
) -> dict[str, Mapping[str, Any]]:
    """Return the datasets that are asked, by name."""
    wanted = [utf8(name) for name in names or ()]
    unknown = [f"there is no dataset {name!r}{nearest(name, every)}" for name in wanted if name not in every]
    if unknown:
        raise InContextError(f"--dataset: {'; '.join(unknown)}")
    return {name: one for name, one in every.items() if not wanted or name in wanted}


def scores_by_dataset(given: Sequence[str] | None, every: Mapping[str, Any]) -> dict[str | None, str]:
    """Return the scores of `--score` by dataset; at None the one that names no dataset."""
    found: dict[str | None, str] = {}
    for text in given or ():
        dataset, mark, score = utf8(text).rpartition("=")
        name = None
        if mark:
            name = dataset
        if name is not None and name not in every:
            raise InContextError(f"--score {text}: there is no dataset {name!r}{nearest(name, every)}")
        if name in found:
            raise InContextError(f"--score {text}: there is one already; for one dataset write DATASET={score}")
        score_of(score)
        found[name] = score
    return found


def score_for(name: str, eval_cfg: object, given: Mapping[str | None, str]) -> str | None:
    """Return the score that is asked for a dataset; None where its `eval_cfg` is followed."""
    plain = given.get(None)
    # A score that names its dataset wins over one for all.
    if name in given or plain in (None, "none"):
        return given.get(name, plain)
    try:
        is_followed = score_of_cfg(eval_cfg) is not None
    except InContextError:
        return plain
    if is_followed:
        note(f"{name}: scored as its eval_cfg says; --score {name}={plain} would take its place")
        return None
    return plain


def meta_template_for(models: Sequence[Mapping[str, Any]], model: Model) -> Any:
    """Return how the models of a configuration are written to, where that is for a model like this one."""
    found: list[Any] = []
    for one in models:
        meta = one.get("meta_template")
        if meta and meta not in found:
            found.append(meta)
    if len(found) == 1 and (isinstance(model, TextModel) or _is_of_api(found[0])):
        return found[0]
    if len(found) == 1:
        note("no meta_template of the configuration is used: it is for a model that completes text")
    elif found:
        note("no meta_template of the configuration is used: it has several")
    return None


def _is_of_api(meta: Any) -> bool:
    """Return whether a meta template names the roles of a chat API."""
    turns = meta
    if isinstance(meta, Mapping):
        turns = meta.get("round", ())
    return isinstance(turns, list) and all(isinstance(one, Mapping) and "api_role" in one for one in turns)


def with_model_entry(models: Sequence[Mapping[str, Any]], model: Model) -> Model:
    """Return a model with the settings of the one model of a configuration, and report what is not followed."""
    if len(models) != 1:
        if models:
            note(f"the configuration has {len(models)} models: no setting of theirs is followed")
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
            ignored.append(f"{key} (--rate takes its place)")
        else:
            ignored.append(key)
    if settings:
        try:
            model = with_settings(model, ModelSettings(**settings))
        except AgentDefinitionError as error:
            note(f"the settings of the configuration's model are not followed: {error}")
    if ignored:
        note(f"not followed of the configuration's model: {', '.join(ignored)}")
    return model


def _options_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a model that have a value; options of generation as `generation_kwargs.NAME`."""
    options = {str(key): value for key, value in entry.items() if key not in _NAMES}
    generation = options.get("generation_kwargs")
    if isinstance(generation, Mapping) and generation:
        del options["generation_kwargs"]
        options |= {f"generation_kwargs.{key}": value for key, value in generation.items()}
    return {key: value for key, value in options.items() if value is not None}


def rows_of(
    given: Sequence[str] | None,
    datasets: Mapping[str, Mapping[str, Any]],
    every: Mapping[str, Mapping[str, Any]],
    config: Path,
    root: Path,
) -> dict[str, Any]:
    """Return the rows of each dataset, or its splits by name: those of `--rows`, or else of its `path`.

    A folder that has one with the name of a dataset contains the rows of each in such a folder. A `path` has to lead
    into `root`. Rows of datasets in `every` that are not asked are ignored.
    """
    rows = _GivenRows()
    for text in given or ():
        rows.add(text, datasets, every)
    rows.check_files()
    rest = [name for name in datasets if name not in rows.named]
    if not rows.files and not rows.splits:
        return {**rows.named, **_each(rest, lambda name: _rows_beside(datasets[name], config, root))}
    if rows.files:
        folder = Path(rows.files[0])
        if any((folder / name).is_dir() for name in rest):
            return {**rows.named, **_each(rest, lambda name: _rows_in(folder / name))}
    if len(datasets) > 1 or not rest:
        raise InContextError(
            f"--rows: {config} has {len(datasets)} datasets: name the one of these rows, as in "
            f"--rows {next(iter(datasets))}:test=FILE, give a folder that has a folder of splits for each, or ask one "
            f"alone with --dataset; there is: {', '.join(datasets)}"
        )
    return {rest[0]: rows.splits or load_rows(rows.files[0])}


class _GivenRows:
    """The values of `--rows`, by what they name."""

    def __init__(self) -> None:
        self.files: list[str] = []
        """Files and folders without a name before them."""
        self.splits: dict[str, Any] = {}
        """Splits of the only dataset."""
        self.named: dict[str, dict[str, Any]] = {}
        """Splits of datasets by name."""

    def add(self, text: str, datasets: Mapping[str, Any], every: Mapping[str, Any]) -> None:
        """Add a value, unless its dataset is not evaluated."""
        name, mark, path = text.partition("=")
        # A file may have an equals sign in its name.
        if not mark or Path(text).exists():
            self.files.append(text)
            return
        dataset, _, split = name.rpartition(":")
        if dataset and dataset not in every:
            raise InContextError(f"--rows {text}: there is no dataset {dataset!r}{nearest(dataset, every)}")
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
            raise InContextError(f"--rows {text}: it holds splits of its own; name a file with the rows of one")
        else:
            self._add_split(name, dataset, split, rows)

    def _add_dataset(self, text: str, name: str, rows: Any) -> None:
        if name in self.named:
            raise InContextError(f"--rows {text}: the rows of {name!r} are there twice")
        self.named[name] = rows if isinstance(rows, dict) else {"test": rows}

    def _add_split(self, name: str, dataset: str, split: str, rows: Any) -> None:
        splits = self.named.setdefault(dataset, {}) if dataset else self.splits
        if split in splits:
            raise InContextError(f"--rows: the split {name!r} is there twice")
        splits[split] = rows

    def check_files(self) -> None:
        """Refuse files that do not exist, or that need the name of their split."""
        for text in self.files:
            if not Path(text).exists():
                raise InContextError(f"--rows {text}: the file or folder does not exist; check the path")
        if self.files and (self.splits or len(self.files) > 1):
            raise InContextError(f"--rows: several files need their splits in front: test={self.files[0]}")


def _each(names: Sequence[str], read: Callable[[str], Any]) -> dict[str, Any]:
    """Return the rows of each dataset; name everything that is wrong with any."""
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
        raise InContextError(f"there is no folder {folder} with its rows, a file for each split")
    return load_rows(folder)


def _rows_beside(dataset: Mapping[str, Any], config: Path, root: Path) -> Any:
    """Return the rows that a dataset names beside its configuration: those of `path/name`, or else of `path`."""
    path, part = dataset.get("path"), dataset.get("name")
    if not isinstance(path, str) or not path:
        raise InContextError("it has no `path`; name its rows with --rows FILE")
    # Paths of a configuration are relative to its file, as the suites have them.
    home = config.parent / path
    inner = None
    if isinstance(part, str) and part:
        inner = home / part
    for place in (home, inner):
        if place is not None and not _lies_in(place, root):
            raise InContextError(f"its path {str(place)!r:.200} leads out of {root}; name its rows with --rows FILE")
    if inner is not None and inner.exists():
        return load_rows(inner, root=root)
    if home.is_file() or (home.is_dir() and inner is None):
        return load_rows(home, root=root)
    if inner is None:
        raise InContextError(f"its path {path!r} is no file beside {config}; name its rows with --rows FILE")
    try:
        return load_rows(home, root=root)
    except InContextError:
        raise InContextError(
            f"its path and name are {f'{path}/{part}'!r}, which is no folder beside {config}, and {path!r} holds no "
            "rows either; name its rows with --rows FILE"
        ) from None


def _lies_in(path: Path, root: Path) -> bool:
    try:
        return Path(os.path.realpath(path)).is_relative_to(root)
    except ValueError:
        # No file can have this name.
        return False
