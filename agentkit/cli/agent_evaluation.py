"""Evaluation of an agent by `agentkit eval --agent`: its scores by name, and its reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from agentkit.agent_files.import_path import imported
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.cli.agent_option import loaded_agent
from agentkit.cli.options import utf8
from agentkit.cli.screen import complain, note, progress_bar, put, put_json
from agentkit.cli.thresholds import relative_thresholds_of
from agentkit.evals import (
    EvalRow,
    EvaluationReport,
    EvaluationStopped,
    ModelUser,
    Outcome,
    Score,
    ScoresFailed,
    called,
    choice,
    cites,
    contains,
    evaluate_sync,
    exact,
    json_equal,
    matches,
    max_money,
    max_steps,
    max_tokens,
    no_tool_errors,
    not_called,
    numeric,
    read_report,
    recalled,
)
from agentkit.evals.eval_row import input_problems, read_rows
from agentkit.evals.evaluation_report import aligned, change_rows
from agentkit.evals.report_comparison import difference_rows
from agentkit.evals.run_scores import ScoreFunction
from agentkit.model_evaluation.evaluation_result import EvaluationProgress
from agentkit.models.model import NO_USAGE
from agentkit_prompts.names import nearest

_SCORES: Mapping[str, ScoreFunction] = {
    score.__name__: score for score in (exact, contains, numeric, choice, json_equal, cites, no_tool_errors)
}
_SCORES_OF_VALUES: Mapping[str, Callable[[str], ScoreFunction]] = {
    "called": called,
    "not_called": not_called,
    "matches": matches,
    "recalled": recalled,
    "max_steps": lambda value: max_steps(int(value)),
    "max_tokens": lambda value: max_tokens(int(value)),
    "max_money": lambda value: max_money(float(value)),
}


def scores_named(names: Sequence[str]) -> list[ScoreFunction]:
    """Return the scores of `--score`: `exact`, `called:TOOL`, or a function of a module, `module:function`.

    Raises:
        typer.BadParameter: A name is unknown, or its value is invalid.
        AgentDefinitionError: A function cannot be imported.
    """
    scores: list[ScoreFunction] = []
    for text in map(utf8, names):
        name, mark, value = text.partition(":")
        if text in _SCORES:
            scores.append(_SCORES[text])
        elif mark and name in _SCORES_OF_VALUES:
            if not value:
                raise typer.BadParameter(f"--score {text}: expected a value after the colon, such as {name}:VALUE")
            try:
                scores.append(_SCORES_OF_VALUES[name](value))
            except ValueError as error:
                raise typer.BadParameter(f"--score {text}: invalid value {value!r:.60}: {error}") from None
        elif mark:
            scores.append(imported(text, Path()))
        else:
            names_of_scores = [*_SCORES, *[f"{each}:VALUE" for each in _SCORES_OF_VALUES], "module:function"]
            raise typer.BadParameter(f"--score: unknown score {text!r:.60}{nearest(text, names_of_scores)}")
    return scores


def refuse_options(options: Mapping[str, object], subject: str) -> None:
    """Refuse options that would be ignored."""
    names = ", ".join([f"--{name}" for name, value in options.items() if value is not None and value is not False])
    if names:
        raise typer.BadParameter(f"{names}: without effect for {subject}; omit it")


def evaluate_agent(
    agent: str,
    model: str | None,
    rows: list[str] | None,
    scores: list[str] | None,
    thresholds: list[str] | None,
    files: Mapping[str, Path | None],
    options: Mapping[str, Any],
    *,
    tenant: str | None,
    approves: bool,
    as_json: bool,
) -> None:
    """Evaluate the agent of `--agent`."""
    if rows is None or len(rows) != 1 or not scores:
        raise typer.BadParameter("--agent needs one --rows FILE, and at least one --score")
    if files["junit"] is not None and not thresholds:
        raise typer.BadParameter(
            "--junit has a test per --fail-under: name a threshold, such as --fail-under exact=0.9"
        )
    _check_files(files)
    functions = scores_named(scores)
    names = [str(getattr(function, "__name__", "")) for function in functions]
    before = None
    if files["before"] is not None:
        before = read_report(files["before"])
    minimums = relative_thresholds_of(thresholds, names, has_before=before is not None)
    run_options = {name: value for name, value in options.items() if value is not None}
    if "database" in run_options:
        run_options["database"] = utf8(run_options["database"])
    if "simulated_user" in run_options:
        run_options["simulated_user"] = ModelUser(utf8(run_options["simulated_user"]))
    if tenant is not None:
        run_options["tenant"] = utf8(tenant)
    if approves:
        run_options["approve"] = lambda call: True
    loaded = loaded_agent(agent, model=model, tenant=tenant)
    try:
        file = Path(utf8(rows[0]))
        if before is not None:
            _check_before(loaded, file, names, before)
        _report(loaded, file, functions, minimums, before, as_json=as_json, files=files, options=run_options)
    finally:
        loaded.close()


def _check_files(files: Mapping[str, Path | None]) -> None:
    """Refuse files of reports that cannot be written."""
    for option in ("junit", "markdown"):
        file = files[option]
        if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
            raise typer.BadParameter(f"--{option} {file}: expected a file in an existing folder")


def _check_before(loaded: LoadedAgent, rows: Path, scores: Sequence[str], before: EvaluationReport) -> None:
    """Refuse results of an earlier evaluation without common rows and scores, before anything is sent."""
    valid_rows = read_rows(rows, EvalRow, lambda row: input_problems(row, loaded.agent.chain.preflight))
    placeholder = {name: Score(0.0) for name in scores}
    outcomes = [
        Outcome(row, 0, "", output=None, error="", scores=placeholder, usage=NO_USAGE, steps=0, seconds=0.0)
        for row in valid_rows
    ]
    EvaluationReport(loaded.name, outcomes).compare(before)


def _report(
    loaded: LoadedAgent,
    rows: Path,
    scores: Sequence[ScoreFunction],
    thresholds: Mapping[str, float | str],
    before: EvaluationReport | None,
    *,
    as_json: bool,
    files: Mapping[str, Path | None],
    options: Mapping[str, Any],
) -> None:
    """Evaluate an agent, print the report, and exit with 1 if a score is below its threshold or all runs failed.

    Args:
        loaded: The agent.
        rows: The file of the rows.
        scores: The scores.
        thresholds: Minimum means by the names of scores; see `EvaluationReport.below`.
        before: Report of an earlier evaluation; None without a comparison.
        as_json: True to print JSON.
        files: Files of further reports: `junit` and `markdown`.
        options: Options of `evaluate`.
    """
    problem: Exception | None = None
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)

        def show(now: EvaluationProgress) -> None:
            bar.update(task, completed=now.done, total=now.total)

        try:
            report = evaluate_sync(loaded.agent, rows, scores, progress=show, **options)
        except (ScoresFailed, EvaluationStopped) as error:
            problem, report = error, error.report
    if files["junit"] is not None:
        files["junit"].write_text(report.junit(thresholds, before), "utf-8")
    if files["markdown"] is not None:
        files["markdown"].write_text(report.markdown(before), "utf-8")
    if as_json:
        put_json(_form(report, before))
    else:
        put(str(report))
        if before is not None:
            put(_comparison(report, before, files["before"]))
    for outcome in report.failures[:10]:
        complain(f"row {outcome.row.id}: {outcome.error:.300}")
    if report.reused:
        note(f"{report.reused} of {len(report.outcomes)} outcomes are from {options['out']}")
    problems = [*_error_texts(problem), *report.below(thresholds, before)]
    if report.outcomes and len(report.failures) == len(report.outcomes):
        problems.append("all runs failed, so that the scores have no meaning")
    for text in problems:
        complain(text)
    if problems:
        raise typer.Exit(1)


def _error_texts(error: Exception | None) -> list[str]:
    """Return the text of the error that ended an evaluation, in the words of the command line."""
    if error is None:
        return []
    text = str(error)
    if isinstance(error, EvaluationStopped):
        # Its text names arguments of `evaluate`; the text of a failed score is from the score.
        text = text.replace("out=", "--out").replace("money=", "--money")
    return [text]


def _comparison(report: EvaluationReport, before: EvaluationReport, file: Path | None) -> str:
    """Return the differences to an earlier report, and the rows that changed, as text."""
    text = f"\ncompared with {file}, row by row\n{aligned(difference_rows(report.compare(before)))}"
    changes = report.changes(before)
    if changes:
        text += f"\n\n{aligned(change_rows(changes))}"
    return text


def _form(report: EvaluationReport, before: EvaluationReport | None) -> dict[str, Any]:
    """Return a report as JSON data."""
    summaries = {name: report.summary(name) for name in report.score_names}
    compared: dict[str, Any] = {}
    if before is not None:
        compared = {
            "differences": [{**asdict(each), "interval": each.interval._asdict()} for each in report.compare(before)],
            "changes": [asdict(each) for each in report.changes(before)],
        }
    return {
        **compared,
        "agent": report.agent,
        "reused": report.reused,
        "overhead": asdict(report.overhead),
        "scores": {
            name: {
                "rows": summary.rows,
                "mean": summary.interval.mean,
                "low": summary.interval.low,
                "high": summary.interval.high,
                "pass_at": dict(summary.pass_at),
                "pass_all": dict(summary.pass_all),
            }
            for name, summary in summaries.items()
        },
        "results": [
            {
                "row": outcome.row.id,
                "repeat": outcome.repeat,
                "run_id": outcome.run_id,
                "output": outcome.output,
                "error": outcome.error or None,
                "scores": {name: [score.value, score.reason] for name, score in outcome.scores.items()},
                "steps": outcome.steps,
                "money": outcome.usage.money,
                "seconds": outcome.seconds,
            }
            for outcome in report.outcomes
        ],
    }
