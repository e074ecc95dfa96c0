"""Comparison of a judge with labels by `agentkit eval --judge`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from agentkit.agent_files.import_path import imported
from agentkit.cli.options import utf8
from agentkit.cli.screen import complain, put, put_json
from agentkit.cli.thresholds import thresholds_of
from agentkit.evals import Interval, JudgeCheck, check_judge_sync
from agentkit_prompts.names import nearest


def report_judge(
    judge: str, rows: Sequence[str] | None, thresholds: Sequence[str], concurrency: int, *, as_json: bool
) -> None:
    """Compare the judge of `--judge`, and exit with 1 if a statistic is below its threshold.

    Raises:
        typer.BadParameter: An option is invalid.
        AgentDefinitionError: The judge cannot be imported.
    """
    if rows is None or len(rows) != 1:
        raise typer.BadParameter("--judge needs one --rows FILE, with the columns input, answer and label")
    names = ("agreement", "kappa", "weighted_kappa")
    minimums = thresholds_of(thresholds)
    for name in minimums:
        if name not in names:
            raise typer.BadParameter(f"--fail-under: unknown statistic {name!r:.60}{nearest(name, names)}")
    check = check_judge_sync(imported(utf8(judge), Path()), Path(utf8(rows[0])), concurrency=concurrency)
    intervals: dict[str, Interval] = {name: getattr(check, name) for name in names}
    if as_json:
        put_json(_form(check, intervals))
    else:
        put(str(check))
        for row in check.disagreements[:10]:
            label, verdict = (check.names[position] for position in check.verdicts[row])
            put(f"row {row}: label {label}, judge {verdict}: {check.reasons[row]:.200}")
    for row, error in list(check.problems.items())[:10]:
        complain(f"row {row}: {error!s:.300}")
    # NaN is below every threshold.
    below = [name for name, minimum in minimums.items() if not intervals[name].mean >= minimum]
    for name in below:
        complain(f"{name} is {intervals[name].mean:.3f}, below {minimums[name]:g}")
    if below or check.problems:
        raise typer.Exit(1)


def _form(check: JudgeCheck, intervals: dict[str, Interval]) -> dict[str, Any]:
    """Return a check as JSON data."""
    return {
        "judge": check.judge,
        "rows": len(check.verdicts),
        **{name: interval._asdict() for name, interval in intervals.items()},
        "levels": list(check.names),
        "confusion": check.confusion,
        "usage": asdict(check.usage),
        "results": [
            {
                "row": row,
                "label": check.names[label],
                "verdict": check.names[verdict],
                "reason": check.reasons[row],
            }
            for row, (label, verdict) in check.verdicts.items()
        ],
        "errors": {row: str(error) for row, error in check.problems.items()},
    }
