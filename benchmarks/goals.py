"""Goals of the benchmarks, read from `goals.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True)
class Goal:
    """The bound of a figure: of its multiple of the limit, or of its value if it has no limit."""

    bound: float
    is_minimum: bool = False

    def is_met(self, number: float) -> bool:
        """Return True if the number meets the goal."""
        return number >= self.bound if self.is_minimum else number <= self.bound

    def text(self, unit: str | None) -> str:
        """Return the goal with its unit; None is the unit of multiples."""
        number = f"x{self.bound:g}" if unit is None else f"{self.bound:,g} {unit}".rstrip()
        return f"at {'least' if self.is_minimum else 'most'} {number}"


def goal_of(workload: str, who: str) -> Goal | None:
    """Return the goal of a candidate; None if it is only reported."""
    for workload_pattern, goals in _table().items():
        if not fnmatchcase(workload, workload_pattern):
            continue
        for who_pattern, value in goals.items():
            if fnmatchcase(who, who_pattern):
                return _goal(value)
    return None


def unused_goals(figures: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the goals without a figure; a figure is a workload and a candidate."""
    measured = list(figures)
    for workload_pattern, goals in _table().items():
        for who_pattern in goals:
            matches = [fnmatchcase(name, workload_pattern) and fnmatchcase(who, who_pattern) for name, who in measured]
            if not any(matches):
                yield f"{workload_pattern}: {who_pattern}"


def _goal(value: float | dict[str, float]) -> Goal | None:
    if not isinstance(value, dict):
        return Goal(value)
    return Goal(value["min"], is_minimum=True) if value else None


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text("utf-8"))
