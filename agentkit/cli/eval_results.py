"""Results of `agentkit eval`: scores, reused answers and failures of the datasets, as a table or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from agentkit.cli.screen import complain, note, plain, put_json, put_table
from agentkit.model_evaluation.evaluation_result import Evaluation, EvaluationFailed
from agentkit.models.model import Model
from agentkit.server.served_runs.event_form import usage_form


class EvaluationResults:
    """Results of the evaluated datasets."""

    def __init__(self) -> None:
        self.evaluations: dict[str, Evaluation] = {}
        self.failures: dict[str, EvaluationFailed] = {}

    def put(self, model: Model, files: Mapping[str, Path], *, as_json: bool) -> None:
        """Print scores, reused answers and failures."""
        forms = {name: _form(result, self.failures.get(name)) for name, result in self.evaluations.items()}
        if as_json:
            put_json({"model": model.name, "datasets": [{"dataset": name, **form} for name, form in forms.items()]})
        elif forms:
            _table(forms)
        for name, result in self.evaluations.items():
            if result.reused:
                reused = f"{result.reused} answers reused from {files[name]}"
                sent = len(result.rows) - result.reused
                note(f"{name}: {sent} rows sent now, {reused}; the tokens are the tokens of this call")
        for name, problem in self.failures.items():
            complain(f"dataset {name}: {problem}".replace("out=", "--out"))


def _form(result: Evaluation, failed: EvaluationFailed | None) -> dict[str, Any]:
    """Return the result of a dataset as JSON data."""
    failures = {}
    if failed is not None:
        failures = failed.failures
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
    """Print a row for each dataset."""
    numbers = ("rows", "failed", "scored", "score", "tokens in", "tokens out")
    rows: list[list[object]] = []
    for name, form in forms.items():
        score = "none"
        if form["score"] is not None:
            score = f"{form['score']:.4f}"
        used = [f"{form['usage'][kind]:,}" for kind in ("input_tokens", "output_tokens")]
        rows.append([Text(plain(name), "cyan"), form["rows"], form["failed"], form["scored"], score, *used])
    put_table(("dataset", *numbers), rows, numbers=numbers)
