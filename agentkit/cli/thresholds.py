"""Minimum values of `--fail-under`."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from agentkit.cli.options import utf8

__all__ = ["thresholds_of"]


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
