"""Views of evaluations: their scores, their rows with the runs, and the differences to another evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agentkit.evals.evaluation_report import EvaluationReport
from agentkit.evals.outcome import Outcome
from agentkit.evals.outcome_file import read_journals

_MAX_TEXT = 240
"""Maximum characters of an input, an answer or a reason in a row."""
_MAX_ROWS = 20_000
"""Maximum number of rows of an answer."""

Json = dict[str, Any]


@dataclass(frozen=True, eq=False)
class StoredEvaluation:
    """An evaluation in a file of `evaluate`."""

    name: str
    report: EvaluationReport
    journals: Mapping[str, tuple[Path, str]]
    """File of the journal and error of each run by the id of the run."""

    @classmethod
    def read(cls, path: Path) -> StoredEvaluation:
        """Read a file that `evaluate` wrote.

        Raises:
            EvaluationError: The file cannot be read, or is not a file of an evaluation of an agent.
        """
        journals: dict[str, tuple[Path, str]] = {}
        report, files_of_runs = read_journals(path)
        for outcome, files in zip(report.outcomes, files_of_runs, strict=True):
            # The run of an outcome is the run of the last turn.
            file = files[-1]
            failed = file.with_suffix(".failed.jsonl")
            if not file.exists() and failed.exists():
                file = failed
            if file.exists():
                journals[outcome.run_id] = file, outcome.error
        return cls(str(path), report, journals)

    @cached_property
    def head(self) -> Json:
        """The agent, the number of runs and the scores. Computed once, because each interval needs resamples."""
        report = self.report
        scores: list[Json] = []
        for name in report.score_names:
            interval = report.summary(name).interval
            scores.append({"name": name, "mean": interval.mean, "low": interval.low, "high": interval.high})
        return {
            "name": self.name,
            "agent": report.agent,
            "runs": len(report.outcomes),
            "failed": len(report.failures),
            "money": report.usage.money,
            "scores": scores,
        }


def evaluation_list(evaluations: Mapping[str, StoredEvaluation]) -> list[Json]:
    """Return the evaluations with their scores, in the order of their files."""
    return [each.head for each in evaluations.values()]


def evaluation_view(evaluation: StoredEvaluation, before: StoredEvaluation | None = None) -> Json:
    """Return the scores and the rows of an evaluation.

    Args:
        evaluation: The evaluation.
        before: Another evaluation, whose rows are next to the rows with the same id and repeat.

    Raises:
        EvaluationError: The evaluations have no score or no row in common.
    """
    report = evaluation.report
    differences: list[Json] = []
    earlier: dict[tuple[str, int], Outcome] = {}
    if before is not None:
        differences = [
            {
                "name": each.name,
                "rows": each.rows,
                "before": each.before,
                "after": each.after,
                "interval": list(each.interval),
                "better": len(each.better),
                "worse": len(each.worse),
            }
            for each in report.compare(before.report)
        ]
        earlier = {(each.row.id, each.repeat): each for each in before.report.outcomes}
    rows = [
        _row(each, evaluation, earlier.get((each.row.id, each.repeat)), before) for each in report.outcomes[:_MAX_ROWS]
    ]
    return {
        **evaluation.head,
        "tags": report.tags,
        "rows": rows,
        "omitted": len(report.outcomes) - len(rows),
        "before": None if before is None else before.name,
        "differences": differences,
    }


def _row(
    outcome: Outcome, evaluation: StoredEvaluation, earlier: Outcome | None, before: StoredEvaluation | None
) -> Json:
    row: Json = {
        "id": outcome.row.id,
        "repeat": outcome.repeat,
        "input": outcome.row.text[:_MAX_TEXT],
        "expected": _text(outcome.row.expected),
        "tags": list(outcome.row.tags),
        **_answer(outcome, evaluation),
    }
    if earlier is not None and before is not None and earlier.row.text == outcome.row.text:
        row["before"] = _answer(earlier, before)
    return row


def _answer(outcome: Outcome, evaluation: StoredEvaluation) -> Json:
    run = None
    if outcome.run_id in evaluation.journals:
        run = outcome.run_id
    return {
        "run": run,
        "output": _text(outcome.output),
        "error": outcome.error[:_MAX_TEXT],
        "scores": {name: [score.value, score.reason[:_MAX_TEXT]] for name, score in outcome.scores.items()},
    }


def _text(value: Any) -> str:
    """Return the start of data as text; empty without data."""
    if value is None:
        return ""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join([_text(each) for each in value])[:_MAX_TEXT]
    return str(value)[:_MAX_TEXT]
