"""Minimum values of `--fail-under`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import typer

from agentkit.cli.options import utf8
from agentkit.evals import EvaluationError
from agentkit.evals.report_comparison import minimum_of
from agentkit_prompts.names import nearest


def thresholds_of(options: Sequence[str]) -> dict[str, float]:
    """Return the minimum values of `--fail-under NAME=VALUE`, by name.

    Raises:
        typer.BadParameter: An option is invalid.
    """
    thresholds: dict[str, float] = {}
    for option in map(utf8, options):
        name, mark, value = option.rpartition("=")
        try:
            thresholds[name] = float(value)
        except ValueError:
            mark = ""
        if not mark:
            raise typer.BadParameter(f"--fail-under {option!r:.60}: expected NAME=VALUE, such as exact=0.9")
    return thresholds


def relative_thresholds_of(
    options: Sequence[str] | None, scores: Collection[str], *, has_before: bool
) -> dict[str, float | str]:
    """Return the minimum means of `--fail-under SCORE=MEAN`, by name; a mean can be `before` or `before-0.02`.

    Args:
        options: The options.
        scores: Names of the scores.
        has_before: True if the results of an earlier evaluation are compared.

    Raises:
        typer.BadParameter: An option is invalid.
    """
    thresholds: dict[str, float | str] = {}
    for option in map(utf8, options or ()):
        name, mark, value = option.rpartition("=")
        if not mark or not value.strip().startswith("before"):
            thresholds |= thresholds_of([option])
        else:
            thresholds[name] = value.strip()
            _check_relative(option, value, has_before=has_before)
        if name not in scores:
            raise typer.BadParameter(f"--fail-under {option!r:.60}: unknown score {name!r:.60}{nearest(name, scores)}")
    return thresholds


def _check_relative(option: str, value: str, *, has_before: bool) -> None:
    if not has_before:
        raise typer.BadParameter(
            f"--fail-under {option!r:.60}: name the results of the earlier evaluation with --before"
        )
    try:
        minimum_of(value, 0.0)
    except EvaluationError:
        raise typer.BadParameter(
            f"--fail-under {option!r:.60}: expected SCORE=MEAN, such as exact=0.9, exact=before or exact=before-0.02"
        ) from None
