"""`agentkit eval`: evaluates a model on the datasets of a configuration file."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkit.cli.agent_option import AgentSource, ModelName
from agentkit.cli.options import AsJson, ChatTemplateName, TemplateModel, not_empty, utf8
from agentkit.cli.screen import note, plain, progress_bar

if TYPE_CHECKING:
    from agentkit.cli.prepared_datasets import PreparedDataset
    from agentkit.model_evaluation.evaluation_result import Evaluation, EvaluationProgress
    from agentkit.models.model import Model

_NO_SERVER = (
    "labels are scored by a server of completions: name it, as in --model http://localhost:8000/v1#NAME "
    "--chat-template base, or set OPENAI_BASE_URL; an API key is only for a server that requires a key, and "
    "`--model offline` scores no labels"
)
_BASE = "base"
"""Name of the chat template that writes plain text, for models without a template."""


def eval(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CONFIG]", help="Configuration of OpenCompass or AISBench, .py or .yaml. Its code is not run."
        ),
    ] = None,
    agent: AgentSource = None,
    judge: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Compare a judge, such as ./scores.py:polite, with the labels of --rows (input, answer, label): "
            "agreement, Cohen's kappa, and the confusion table.",
        ),
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--rows",
            "-r",
            metavar="[[DATASET:]SPLIT=]FILE",
            help="Rows: a .jsonl, .json or .csv file, a folder of splits, or a folder with a folder of splits per "
            "DATASET. Repeatable, as SPLIT=FILE or DATASET=FOLDER. Default: `path/name` or `path` of the dataset. "
            "With --agent: a .yaml, .jsonl, .json or .csv file.",
        ),
    ] = None,
    model: ModelName = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", "-d", metavar="ABBR", help="Evaluate only this dataset. Repeatable."),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder outside of which CONFIG and its rows read nothing. [default: the nearest parent folder "
            "`configs`, or the folder of CONFIG]",
        ),
    ] = None,
    allow_media: Annotated[
        bool,
        typer.Option("--allow-media", help="Also send media in files outside of --root and at inner addresses."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of the answers, from which the command resumes; with several datasets, a folder of such files.",
        ),
    ] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[DATASET=]NAME",
            help="Score if the `eval_cfg` is missing or unsupported: exact, choice (the chosen letter, such as the "
            "last letter after `the answer is`), numeric (the last number) or none. DATASET=NAME overrides it. "
            "Patterns of the file are ignored. With --agent, repeatable: exact, numeric, choice, contains, json_equal, "
            "called:TOOL, not_called:TOOL, no_tool_errors, max_steps:N, cites, module:function, and others.",
        ),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum concurrent requests. [default: batch_size, or 16]")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="T", help="Overrides the temperature of CONFIG. Raw completions are greedy (0) by default."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Evaluate the first N rows of each dataset.")
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0, metavar="R", help="Maximum requests per second.")] = None,
    show: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Print the prompts of the first N rows without sending them.")
    ] = None,
    chat_template: ChatTemplateName = None,
    model_name: TemplateModel = None,
    embedder: Annotated[
        str | None,
        typer.Option(metavar="KIND:MODEL", help="Model of a TopkRetriever, such as fastembed:BAAI/bge-small-en-v1.5."),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --agent: tenant for whom the runs act.", callback=not_empty)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --agent: approve every tool call.")] = False,
    repeats: Annotated[int | None, typer.Option(min=1, metavar="K", help="With --agent: runs of each row.")] = None,
    money: Annotated[
        float | None, typer.Option(min=0, metavar="USD", help="With --agent: maximum US dollars of all runs.")
    ] = None,
    user_model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="With --agent: model that plays the user of rows with a `goal`, such as openai:gpt-5-mini.",
        ),
    ] = None,
    batch: Annotated[
        bool,
        typer.Option(
            "--batch",
            help="With --agent and --out: send all requests in batches of OpenAI or Anthropic, which take up to a day "
            "and cost half the price. Only for agents without tools.",
        ),
    ] = False,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCORE=MEAN",
            help="With --agent: exit with 1 if the mean of a score is lower; with --before, MEAN can be before or "
            "before-0.02. With --judge: agreement, kappa or weighted_kappa. Repeatable.",
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="With --agent and --out: database whose workers execute the runs: `agentkit worker --agent --url`.",
        ),
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --agent: file of --out of an earlier version, which is compared row by row."
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --agent: JUnit XML, one test per --fail-under.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="With --agent: report as Markdown.")] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on every row of a dataset, an agent on rows, or a judge on labelled rows.

    Scores are printed to stdout, everything else to stderr. After an interruption, the same command with the same --out
    resumes. A configuration that scores labels requires a model of raw completions: name its chat template, or `base`.
    The exit code is 1 if an input is invalid, a row of a dataset failed, all runs of an agent failed, or a score is
    below --fail-under.

    Example: agentkit eval --agent shop.yaml --rows cases.yaml --score exact --fail-under exact=0.9
    Example: agentkit eval gsm8k_gen.py --rows train=train.jsonl --rows test=test.jsonl --model openai:gpt-5-mini
    """
    from agentkit.cli.agent_evaluation import evaluate_agent, refuse_options
    from agentkit.cli.eval_inputs import (
        chosen_datasets,
        meta_template_for,
        named_datasets,
        rows_of,
        scores_by_dataset,
        with_model_entry,
    )
    from agentkit.cli.eval_results import EvaluationResults
    from agentkit.cli.judge_report import report_judge
    from agentkit.cli.prepared_datasets import Media, prepared_datasets, put_prompts
    from agentkit.model_evaluation.evaluation_result import EvaluationFailed
    from agentkit.models.model_errors import ModelError
    from agentkit.models.settings import ModelSettings
    from agentkit_memory.embedders.store_embedders import embedder_named
    from agentkit_prompts.context.wire.allowed_media import MediaFolder
    from agentkit_prompts.evaluation.config.config_file import load_datasets, root_of

    only_agent = {
        "repeats": repeats,
        "money": money,
        "user-model": user_model,
        "before": before,
        "batch": batch,
        "database": database,
        "junit": junit,
        "markdown": markdown,
        "tenant": tenant,
        "yes": yes,
    }
    only_model = {
        "dataset": dataset,
        "root": root,
        "temperature": temperature,
        "limit": limit,
        "show": show,
        "chat-template": chat_template,
        "model-name": model_name,
        "embedder": embedder,
        "allow-media": allow_media,
    }
    if judge is not None:
        run_options = {"agent": agent, "model": model, "score": score, "out": out, "rate": rate}
        refuse_options({**only_model, **only_agent, **run_options}, "--judge")
        if config is not None:
            raise typer.BadParameter("expected CONFIG or --judge, not both")
        report_judge(judge, rows, fail_under or (), concurrency or 8, as_json=as_json)
        return
    if agent is not None:
        refuse_options(only_model, "--agent")
        if config is not None:
            raise typer.BadParameter("expected CONFIG or --agent, not both")
        evaluate_agent(
            agent,
            model,
            rows,
            score,
            fail_under,
            {"before": before, "junit": junit, "markdown": markdown},
            {
                "repeats": repeats,
                "concurrency": concurrency,
                "rate": rate,
                "money": money,
                "out": out,
                "database": database,
                "simulated_user": user_model,
                "batch": batch,
            },
            tenant=tenant,
            approves=yes,
            as_json=as_json,
        )
        return
    refuse_options({**only_agent, "fail-under": fail_under}, "a CONFIG")
    if config is None:
        raise typer.BadParameter("expected CONFIG, or --agent with --rows and --score")
    every = named_datasets(load_datasets(config, root=root))
    scores = scores_by_dataset(score, every)
    chosen = chosen_datasets(every, dataset)
    folder = MediaFolder(root_of(config, root), config.parent)
    sources = rows_of(rows, chosen, every, config, folder.root)
    models = _configured_models(config, root)
    has_labels = any(_scores_labels(entry) for entry in chosen.values())
    target = with_model_entry(
        models, _model(model, chat_template, model_name, sends=show is None, has_labels=has_labels)
    )
    meta = meta_template_for(models, target)
    settings = ModelSettings(temperature=temperature)
    files = _files(out, list(chosen))
    vectors = None
    if embedder is not None:
        vectors = embedder_named(utf8(embedder))
    is_shown = show is not None
    # All datasets are validated before the first request, because an evaluation can take hours.
    media = Media(root=folder, allow_media=allow_media)
    prepared = prepared_datasets(
        chosen,
        sources,
        target,
        vectors,
        scores,
        meta_template=meta,
        settings=settings,
        limit=limit,
        is_shown=is_shown,
        media=media,
    )
    if show is not None:
        put_prompts(prepared, show, as_json=as_json)
        return
    _note_settings(target, prepared, is_named=model is not None)
    options = {"meta_template": meta, "concurrency": concurrency, "rate": rate, **media}
    results = EvaluationResults()
    for name, entry in prepared.items():
        try:
            results.evaluations[name] = _evaluate(name, entry, target, {**options, "out": files.get(name)})
        except EvaluationFailed as error:
            results.failures[name] = error
            results.evaluations[name] = error.evaluation
        except ModelError:
            # The other datasets would fail in the same way: the results so far are printed.
            results.put(target, files, as_json=as_json)
            raise
    results.put(target, files, as_json=as_json)
    if results.failures:
        raise typer.Exit(1)


def _configured_models(config: Path, root: Path | None) -> list[Mapping[str, Any]]:
    """Return the models of a configuration; other entries of `models` are ignored."""
    from agentkit_prompts.evaluation.config.config_file import load_config

    models = dict(load_config(config, root=root)).get("models")
    if not isinstance(models, list):
        return []
    return [entry for entry in models if isinstance(entry, Mapping)]


def _note_settings(model: Model, prepared: Mapping[str, PreparedDataset], *, is_named: bool) -> None:
    """Print the settings of the model, or a note if the offline model answers."""
    from agentkit.cli.prepared_datasets import settings_of
    from agentkit.models.offline.offline_model import OfflineModel

    if isinstance(model, OfflineModel) and not is_named:
        note("the offline model answers, so a score has no meaning; name a model with --model")
        return
    for text, names in settings_of(prepared).items():
        datasets = ""
        if len(names) < len(prepared):
            datasets = f" ({', '.join(names)})"
        note(f"model {model.name}: {text}{datasets}")


def _scores_labels(dataset: Mapping[str, Any]) -> bool:
    """True if labels are scored by log probabilities, which only a server of completions returns."""
    cfg = dataset.get("infer_cfg")
    if not isinstance(cfg, Mapping) or not isinstance(cfg.get("inferencer"), Mapping):
        return False
    kind = cfg["inferencer"].get("type")
    return str(getattr(kind, "__name__", kind)).rpartition(".")[2] in ("PPLInferencer", "LLInferencer")


def _model(
    name: str | None, chat_template: str | None, model_name: str | None, *, sends: bool, has_labels: bool
) -> Model:
    # Labels are scored in the text of the prompt, so that the model must be a completion model.
    from agentkit.cli.default_agent import choose_model
    from agentkit.models.completion.completion_model import CompletionModel
    from agentkit.models.model_errors import ModelAuthError
    from agentkit.models.model_names import model as model_of_name

    template = chat_template or model_name
    if not sends and name is None and (template is not None or has_labels):
        # This model renders prompts and requires no key.
        if template is None:
            template = _BASE
            note("shown without a chat template; name the template of the model with --chat-template NAME")
        return CompletionModel(template, template)
    if name is not None and ":" in name and chat_template is None and model_name is None:
        return model_of_name(utf8(name))
    try:
        return choose_model(name, chat_template, model_name)
    except ModelAuthError as error:
        if not has_labels:
            raise
        raise ModelAuthError(_NO_SERVER, model=error.model) from error


def _files(out: Path | None, names: Sequence[str]) -> dict[str, Path]:
    """Return the file of the answers of each dataset."""
    from agentkit_prompts.errors import InContextError

    if out is None:
        return {}
    # One dataset needs no folder.
    if len(names) == 1 and not out.is_dir():
        return {names[0]: out}
    if out.is_file():
        raise InContextError(f"--out {out}: {len(names)} datasets require a folder, not a file; name a folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InContextError(f"--out {out}: the folder cannot be created ({error.strerror})") from error
    bare = {name: re.sub(r"[^\w.-]", "-", name).strip(".") or "dataset" for name in names}
    files = {name: out / f"{file}.jsonl" for name, file in bare.items()}
    if len(set(files.values())) < len(files):
        raise InContextError("--out: names of datasets differ only in characters that no file can have; use --dataset")
    return files


def _evaluate(name: str, dataset: PreparedDataset, model: Model, options: Mapping[str, Any]) -> Evaluation:
    from agentkit.cli.prepared_datasets import note_once
    from agentkit.model_evaluation.run_evaluation import run_sync
    from agentkit_prompts.errors import InContextWarning

    total = len(dataset.rows)
    with warnings.catch_warnings(record=True) as caught, progress_bar() as bar:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", InContextWarning)
        task = bar.add_task(plain(name), total=total)

        def show(now: EvaluationProgress) -> None:
            text = plain(name)
            if now.failed:
                text += f" ({now.failed} failed)"
            bar.update(task, description=text, completed=now.done)

        score = dataset.score or "none"
        try:
            return run_sync(
                dataset.sender.icl,
                dataset.rows,
                model,
                score=score,
                settings=dataset.settings,
                progress=show,
                **options,
            )
        except KeyboardInterrupt:
            note(f"\nstopped: {_progress(bar.tasks[task].completed, total, options.get('out'))}")
            raise typer.Exit(130) from None
        finally:
            bar.stop()
            note_once(name, [*dataset.warnings, *(str(warning.message) for warning in caught)])


def _progress(done: float, total: float, out: Path | None) -> str:
    if out is None:
        return "no answer is stored; with --out FILE, the same command resumes"
    if not done:
        return "no row was answered yet; the same command starts again"
    return f"{done:.0f} of {total:.0f} rows were sent; the answers are in {out}, and the same command resumes"
