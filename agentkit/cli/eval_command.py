"""`agentkit eval`: the datasets of a configuration file, asked of a model and scored."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentkit.cli.agent_option import ModelName
from agentkit.cli.default_agent import choose_model
from agentkit.cli.options import AsJson, ChatTemplateName, TemplateModel, utf8
from agentkit.cli.screen import complain, note, plain, progress_bar, put_json
from agentkit.errors import AgentDefinitionError
from agentkit.evaluations.asking import Asker, TextModel
from agentkit.evaluations.evaluation_result import Evaluation, EvaluationFailed, EvaluationProgress
from agentkit.evaluations.row_files import load_rows
from agentkit.evaluations.run_evaluation import configured, run_sync
from agentkit.evaluations.scores import score_of
from agentkit.models.model import Model
from agentkit.models.model_names import model as model_of_name
from agentkit.models.settings import NO_SETTINGS
from agentkit.server.served_runs.event_form import usage_form
from agentkit_memory.embedders.store_embedders import embedder_named
from agentkit_prompts.errors import InContextError, InContextWarning, nearest
from agentkit_prompts.evaluation.config_file import load_config, load_datasets
from agentkit_prompts.ranking.embedder import Embedder

__all__ = ["evaluate"]

_WIDE = 200
"""Characters of a line where there is no terminal to fit."""


def evaluate(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="A configuration of OpenCompass or AISBench, .py or .yaml. None is run."),
    ],
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--rows",
            "-r",
            metavar="[SPLIT=]FILE",
            help="Rows: .jsonl, .json or .csv, or a folder of splits. Repeatable, with the split in front. "
            "Without it they are read from the `path` of the dataset.",
        ),
    ] = None,
    model: ModelName = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", "-d", metavar="ABBR", help="Ask this one only. Repeatable.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the answers there, and go on from it; with several datasets a folder, with a file for each.",
        ),
    ] = None,
    score: Annotated[
        str | None, typer.Option(metavar="NAME", help="exact, choice or numeric, in place of the `eval_cfg`.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, metavar="N", help="Requests at once.")] = None,
    chat_template: ChatTemplateName = None,
    model_name: TemplateModel = None,
    embedder: Annotated[
        str | None,
        typer.Option(metavar="KIND:MODEL", help="Model of a TopkRetriever, such as fastembed:BAAI/bge-small-en-v1.5."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask a model about every row of a dataset, and score its answers.

    The scores go to stdout, all else to stderr. Stopped at any point, the same command with the same --out goes on. A
    configuration that scores labels needs a model of raw completions: name its chat template, or `base`. The exit code
    is 1 when something is wrong, or rows could not be asked.

    Example: agentkit eval gsm8k_gen.py --rows train=train.jsonl --rows test=test.jsonl --model openai:gpt-5-mini
    """
    score_of(score)
    chosen = _chosen(load_datasets(config), dataset)
    given = _rows(rows)
    if given is not None and len(chosen) > 1:
        raise InContextError(
            f"--rows: {config} has {len(chosen)} datasets: name the one of these rows with --dataset; "
            f"there is: {', '.join(chosen)}"
        )
    held = _rows_of(chosen, config) if given is None else dict.fromkeys(chosen, given)
    asked = _model(model, chat_template, model_name)
    meta = _meta_template(config, asked)
    files = _files(out, list(chosen))
    vectors = embedder_named(utf8(embedder)) if embedder is not None else None
    _check(chosen, held, asked, meta, vectors)
    options: dict[str, Any] = {"embedder": vectors, "score": score, "concurrency": concurrency, "meta_template": meta}
    note(f"model {asked.name}")
    found: dict[str, Evaluation] = {}
    failed: dict[str, EvaluationFailed] = {}
    for name, one in chosen.items():
        try:
            found[name] = _asked(name, one, held[name], asked, {**options, "out": files.get(name)})
        except EvaluationFailed as error:
            failed[name], found[name] = error, error.evaluation
    forms = {name: _form(result, failed.get(name)) for name, result in found.items()}
    if as_json:
        put_json({"model": asked.name, "datasets": [{"dataset": name, **form} for name, form in forms.items()]})
    else:
        _table(forms)
    for name, problem in failed.items():
        complain(f"dataset {name}: {problem}".replace("the same out=", "the same --out"))
    if failed:
        raise typer.Exit(1)


def _chosen(datasets: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> dict[str, Mapping[str, Any]]:
    """Return the datasets that are asked, by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for number, one in enumerate(datasets):
        name = str(one.get("abbr") or f"dataset-{number}")
        if name in found:
            raise InContextError(f"several datasets are called {name!r}; give each an `abbr` of its own")
        found[name] = one
    wanted = [utf8(name) for name in names or ()]
    unknown = [f"there is no dataset {name!r}{nearest(name, found)}" for name in wanted if name not in found]
    if unknown:
        raise InContextError(f"--dataset: {'; '.join(unknown)}")
    return {name: one for name, one in found.items() if not wanted or name in wanted}


def _meta_template(config: Path, model: Model) -> Any:
    """Return how the models of a configuration are written to, where that is for a model like this one."""
    models = dict(load_config(config)).get("models")
    found: list[Any] = []
    for one in models if isinstance(models, list) else ():
        meta = one.get("meta_template") if isinstance(one, Mapping) else None
        if meta and meta not in found:
            found.append(meta)
    if len(found) == 1 and (isinstance(model, TextModel) or _is_of_api(found[0])):
        return found[0]
    if found:
        why = "it is for a model that completes text" if len(found) == 1 else "there are several"
        note(f"no meta_template of the configuration is used: {why}")
    return None


def _is_of_api(meta: Any) -> bool:
    """Return whether a meta template names the roles of a chat API."""
    turns = meta.get("round", ()) if isinstance(meta, Mapping) else meta
    return isinstance(turns, list) and all(isinstance(one, Mapping) and "api_role" in one for one in turns)


def _rows(given: Sequence[str] | None) -> Any:
    """Return what `--rows` names: rows, or splits by name."""
    if not given:
        return None
    splits: dict[str, Any] = {}
    plain_files: list[str] = []
    for text in given:
        name, mark, path = text.partition("=")
        if not mark or Path(text).exists():
            plain_files.append(text)
            continue
        found = load_rows(path)
        if isinstance(found, dict):
            raise InContextError(f"--rows {text}: it holds splits of its own; name a file with the rows of one")
        if name in splits:
            raise InContextError(f"--rows: the split {name!r} is there twice")
        splits[name] = found
    if plain_files and (splits or len(plain_files) > 1):
        raise InContextError(f"--rows: several files need their splits in front: test={plain_files[0]}")
    return splits or load_rows(plain_files[0])


def _rows_of(datasets: Mapping[str, Mapping[str, Any]], config: Path) -> dict[str, Any]:
    """Return the rows that each dataset names as its `path`, beside the configuration."""
    found: dict[str, Any] = {}
    problems = []
    for name, dataset in datasets.items():
        path = dataset.get("path")
        file = config.parent / path if isinstance(path, str) and path else None
        try:
            if file is None or not file.exists():
                raise InContextError(f"its path {path!r} is no file beside {config}; name its rows with --rows FILE")
            found[name] = load_rows(file)
        except InContextError as error:
            problems.append(f"dataset {name}: {error}")
    if problems:
        raise InContextError("\n".join(problems))
    return found


def _check(
    datasets: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, Any],
    model: Model,
    meta: Any,
    embedder: Embedder | None,
) -> None:
    """Refuse what no dataset can be asked with, all of it, before anything is sent."""
    problems = []
    for name, one in datasets.items():
        try:
            icl, asked = configured(one, rows[name], embedder)
            icl.reader.check((), asked)
            Asker(icl, model, meta, NO_SETTINGS)
        except (InContextError, AgentDefinitionError) as error:
            problems.append(f"dataset {name}: {error}")
    if problems:
        raise InContextError("\n".join(problems))


def _model(name: str | None, chat_template: str | None, model_name: str | None) -> Model:
    if name is not None and ":" in name and chat_template is None and model_name is None:
        return model_of_name(utf8(name))
    return choose_model(name, chat_template, model_name)


def _files(out: Path | None, names: Sequence[str]) -> dict[str, Path]:
    """Return the file of each dataset's answers."""
    if out is None:
        return {}
    if len(names) == 1 and not out.is_dir():
        return {names[0]: out}
    out.mkdir(parents=True, exist_ok=True)
    bare = {name: re.sub(r"[^\w.-]", "-", name).strip(".") or "dataset" for name in names}
    files = {name: out / f"{file}.jsonl" for name, file in bare.items()}
    if len(set(files.values())) < len(files):
        raise InContextError("--out: names of datasets differ only in characters that no file can have; use --dataset")
    return files


def _asked(name: str, dataset: Mapping[str, Any], rows: Any, model: Model, options: Mapping[str, Any]) -> Evaluation:
    with warnings.catch_warnings(record=True) as caught, progress_bar() as bar:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", InContextWarning)
        task = bar.add_task(plain(name), total=None)

        def show(now: EvaluationProgress) -> None:
            text = f"{plain(name)} ({now.failed} failed)" if now.failed else plain(name)
            bar.update(task, description=text, completed=now.done, total=now.total)

        try:
            return run_sync(dataset, rows, model, progress=show, **options)
        finally:
            bar.stop()
            for text in dict.fromkeys(str(one.message) for one in caught):
                note(f"{name}: {text}")


def _form(result: Evaluation, failed: EvaluationFailed | None) -> dict[str, Any]:
    failures = {} if failed is None else failed.failures
    return {
        "rows": len(result.rows) + len(failures),
        "scored": sum(row.score is not None for row in result.rows),
        "failed": len(failures),
        "score": result.score,
        "usage": usage_form(result.usage),
    }


def _table(forms: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("dataset", style="cyan", overflow="fold")
    for name in ("rows", "failed", "score", "tokens in", "tokens out"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, form in forms.items():
        shown = "none" if form["score"] is None else f"{form['score']:.4f}"
        usage = form["usage"]
        counts = (form["rows"], form["failed"], shown, f"{usage['input_tokens']:,}", f"{usage['output_tokens']:,}")
        table.add_row(Text(plain(name)), *map(str, counts))
    console = Console(highlight=False)
    console.width = console.width if console.is_terminal else _WIDE
    console.print(table)
