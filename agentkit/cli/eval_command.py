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
from agentkit.cli.eval_inputs import chosen_datasets, meta_template_for, rows_of, with_model_entry
from agentkit.cli.options import AsJson, ChatTemplateName, TemplateModel, utf8
from agentkit.cli.screen import complain, note, plain, progress_bar, put, put_json
from agentkit.errors import AgentDefinitionError
from agentkit.evaluations.asking import Asker
from agentkit.evaluations.evaluation_result import Evaluation, EvaluationFailed, EvaluationProgress
from agentkit.evaluations.run_evaluation import configured, run_sync
from agentkit.evaluations.scores import score_of
from agentkit.evaluations.shipped_scores import score_of_rows
from agentkit.models.model import Model
from agentkit.models.model_errors import ModelError
from agentkit.models.model_names import model as model_of_name
from agentkit.models.settings import ModelSettings
from agentkit.server.served_runs.event_form import usage_form
from agentkit_memory.embedders.store_embedders import embedder_named
from agentkit_prompts.errors import InContextError, InContextWarning
from agentkit_prompts.evaluation.config_file import load_config, load_datasets
from agentkit_prompts.evaluation.dataset_reader import Row
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
            metavar="[[DATASET:]SPLIT=]FILE",
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
        str | None,
        typer.Option(metavar="NAME", help="exact, choice or numeric, or none, in place of the `eval_cfg`."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Requests at once. [default: batch_size, or 16]")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, metavar="T", help="In place of the file's. Without any, raw completions are greedy (0)."),
    ] = None,
    show: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Print the prompts of the first N rows; nothing is asked.")
    ] = None,
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
    chosen = chosen_datasets(load_datasets(config), dataset)
    held = rows_of(rows, chosen, config)
    listed = dict(load_config(config)).get("models")
    models = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    asked = with_model_entry(models, _model(model, chat_template, model_name))
    meta = meta_template_for(models, asked)
    settings = ModelSettings(temperature=temperature)
    files = _files(out, list(chosen))
    vectors = embedder_named(utf8(embedder)) if embedder is not None else None
    options: dict[str, Any] = {"embedder": vectors, "score": score, "meta_template": meta, "settings": settings}
    askers = _checked(chosen, held, asked, is_shown=show is not None, **options)
    if show is not None:
        _show(askers, show, as_json=as_json)
        return
    options["concurrency"] = concurrency
    for text, names in _settings_of(askers).items():
        note(f"model {asked.name}: {text}" + ("" if len(names) == len(askers) else f" ({', '.join(names)})"))
    found: dict[str, Evaluation] = {}
    failed: dict[str, EvaluationFailed] = {}
    broken: ModelError | None = None
    for name, one in chosen.items():
        try:
            found[name] = _asked(name, one, held[name], asked, {**options, "out": files.get(name)})
        except EvaluationFailed as error:
            failed[name], found[name] = error, error.evaluation
        except ModelError as error:  # it would be the same for the other datasets
            broken = error
            break
    forms = {name: _form(result, failed.get(name)) for name, result in found.items()}
    if as_json:
        put_json({"model": asked.name, "datasets": [{"dataset": name, **form} for name, form in forms.items()]})
    elif forms:
        _table(forms)
    for name, result in found.items():
        if result.reused:
            kept = f"{result.reused} were kept in {files[name]}"
            note(f"{name}: {len(result.rows) - result.reused} rows asked now, {kept}; tokens are those of this run")
    for name, problem in failed.items():
        complain(f"dataset {name}: {problem}".replace("out=", "--out"))
    if broken is not None:
        raise broken
    if failed:
        raise typer.Exit(1)


def _checked(
    datasets: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, Any],
    model: Model,
    *,
    embedder: Embedder | None,
    score: str | None,
    meta_template: Any,
    settings: ModelSettings,
    is_shown: bool,
) -> dict[str, tuple[Asker, Sequence[Row]]]:
    """Return what asks each dataset; refuse what none can be asked with, all of it, before anything is sent."""
    problems = []
    found: dict[str, tuple[Asker, Sequence[Row]]] = {}
    for name, one in datasets.items():
        try:
            with warnings.catch_warnings():  # they come again when it is asked
                warnings.simplefilter("ignore", InContextWarning)
                icl, asked = configured(one, rows[name], embedder)
                icl.reader.check((), asked)
                found[name] = Asker(icl, model, meta_template, settings), asked
                if not is_shown and score_of_rows(score, one.get("eval_cfg"), icl, asked) is None and score is None:
                    note(f"{name}: there is no eval_cfg, so nothing is scored; give --score exact, choice or numeric")
        except (InContextError, AgentDefinitionError) as error:
            problems.append(f"dataset {name}: {error}")
    if problems:
        text = "\n".join(problems).replace("score= ", "--score ").replace(", or a function", "")
        raise InContextError(text.replace("score='none'", "--score none"))
    return found


def _settings_of(askers: Mapping[str, tuple[Asker, Sequence[Row]]]) -> dict[str, list[str]]:
    """Return the settings that answers depend on, each with the datasets that are asked so."""
    found: dict[str, list[str]] = {}
    for name, (asker, _) in askers.items():
        found.setdefault(asker.shown_settings, []).append(name)
    return found


def _show(askers: Mapping[str, tuple[Asker, Sequence[Row]]], count: int, *, as_json: bool) -> None:
    """Print the prompts of the first rows as the model would be sent them; of a dialogue the first."""
    found: list[dict[str, Any]] = []
    for name, (asker, rows) in askers.items():
        icl = asker.icl
        for number, ids in enumerate(icl.ids(rows)[:count]):
            for label in icl.labels(rows) if icl.mode == "ppl" else [None]:
                is_dialogue = icl.inferencer.mode is not None
                prompt = (
                    next(icl.requests(rows[number], ids))
                    if is_dialogue
                    else icl.prompt(rows[number], ids, label, keep_separator=False)
                )
                entry = {"dataset": name, "row": number, "prompt": asker.shown(prompt)}
                found.append(entry if label is None else {**entry, "label": label})
    if as_json:
        put_json(found)
        return
    for one in found:
        label = f", label {one['label']}" if "label" in one else ""
        note(f"{one['dataset']}, row {one['row']}{label}:")
        prompt = one["prompt"]
        put(prompt if isinstance(prompt, str) else "\n".join(f"{part['role']}: {part['content']}" for part in prompt))


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
        except KeyboardInterrupt:
            note(f"\nstopped: {_kept(bar.tasks[task].completed, bar.tasks[task].total, options.get('out'))}")
            raise typer.Exit(130) from None
        finally:
            bar.stop()
            for text in dict.fromkeys(str(one.message) for one in caught):
                note(f"{name}: {text}")


def _kept(done: float, total: float | None, out: Path | None) -> str:
    if out is None:
        return "nothing is kept; with --out FILE the same command would go on"
    rows = f"{done:.0f} of {total:.0f} rows were asked" if total is not None else "no row was asked"
    return f"{rows}; their answers are in {out}, and the same command goes on"


def _form(result: Evaluation, failed: EvaluationFailed | None) -> dict[str, Any]:
    failures = {} if failed is None else failed.failures
    return {
        "rows": len(result.rows) + len(failures),
        "reused": result.reused,
        "scored": sum(row.score is not None for row in result.rows),
        "failed": len(failures),
        "score": result.score,
        "usage": usage_form(result.usage),
        "results": [
            {"row": row.row, "answers": row.answers, "gold": row.gold, "score": row.score} for row in result.rows
        ],
        "failures": [{"row": row, "error": str(error)} for row, error in failures.items()],
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
