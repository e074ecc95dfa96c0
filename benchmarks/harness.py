"""Measurement of every benchmark: CPU time of the process, limit and peers interleaved, order swapped each round.

A candidate is a function that does its work `n` times, with a different input each time. The first candidate of a
workload is its limit, the same work written by hand; the results of other candidates are multiples of the limit. The
goals of the multiples are in `goals.toml`.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from goals import goal_of

Work: TypeAlias = Callable[[int], object]
"""A function that does its work `n` times."""
_TIMES = ("s", "ms", "µs")
"""Units without goals: a clock depends on the machine and its load."""


class Samples(float):
    """Median CPU seconds of one unit of work, with the seconds of each round."""

    rounds: Sequence[float]

    def __new__(cls, rounds: Sequence[float]) -> Samples:
        samples = super().__new__(cls, statistics.median(rounds))
        samples.rounds = rounds
        return samples


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number."""

    workload: str
    """Name of the workload, such as `W2 run`."""
    who: str
    """Name of the candidate."""
    value: float
    unit: str
    ratio: float | None = None
    """Multiple of the limit; None for the limit itself, and without a limit."""
    spread: tuple[float, float] | None = None
    """Lower and upper quartile of the rounds: of the ratio, or of the value if the ratio is None."""

    def as_row(self) -> dict[str, object]:
        """Return the fields, the goal and True if the goal is met; None and None without a goal."""
        is_time = self.ratio is None and self.unit in _TIMES
        goal = None if is_time else goal_of(self.workload, self.who)
        number = self.value if self.ratio is None else self.ratio
        text = met = None
        if goal is not None:
            text = goal.text(self.unit if self.ratio is None else None)
            met = goal.is_met(number)
        return {**asdict(self), "goal": text, "met": met}


def interleave(candidates: Mapping[str, Work], n: int, rounds: int = 9) -> dict[str, Samples]:
    """Return the CPU seconds of one unit of work, per candidate."""
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for work in candidates.values():
        work(max(1, n // 10))  # warm
    for number in range(rounds):
        for name in list(candidates)[:: 1 if number % 2 else -1]:
            gc.collect()
            start = time.process_time()
            candidates[name](n)
            samples[name].append((time.process_time() - start) / n)
    return {name: Samples(times) for name, times in samples.items()}


def figures(workload: str, seconds: Mapping[str, Samples], *, unit: str = "µs") -> list[Figure]:
    """Return measured seconds as figures; the first candidate is the limit."""
    scale = {"s": 1.0, "ms": 1e3, "µs": 1e6}[unit]
    names = list(seconds)
    limit = seconds[names[0]]
    rows = [Figure(workload, names[0], limit * scale, unit, None, quartiles([each * scale for each in limit.rounds]))]
    for name in names[1:]:
        samples = seconds[name]
        ratio, spread = median_of_ratios(samples.rounds, limit.rounds)
        rows.append(Figure(workload, name, samples * scale, unit, ratio, spread))
    return rows


def median_of_ratios(samples: Sequence[float], limits: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """Return the median and the quartiles of the ratios of each round to the limit of the same round."""
    ratios = [sample / limit for sample, limit in zip(samples, limits, strict=True)]
    return statistics.median(ratios), quartiles(ratios)


def quartiles(numbers: Sequence[float]) -> tuple[float, float] | None:
    """Return the lower and the upper quartile; None for fewer than three numbers."""
    if len(numbers) < 3:
        return None
    low, _, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return low, high


def kib_each(create: Callable[[], object], n: int = 1000) -> float:
    """Return the memory of one object in KiB, as measured by `tracemalloc`."""
    create()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    objects = [create() for _ in range(n)]
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / 1024 / len(objects)


def main(description: str | None, workloads: Mapping[str, Callable[[int], Iterable[Figure]]]) -> None:
    """Measure the workloads named on the command line (by default, all) and print a table or JSON."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("workload", nargs="*", choices=[[], *workloads], help=f"one of {', '.join(workloads)}")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print one JSON object per figure")
    options = parser.parse_args()
    for name in options.workload or workloads:
        for figure in workloads[name](options.rounds):
            row = figure.as_row()
            print(json.dumps(row) if options.json else _line(figure, row), flush=True)


def _line(figure: Figure, row: Mapping[str, object]) -> str:
    ratio = "" if figure.ratio is None else f"x{figure.ratio:.2f}"
    spread = "" if figure.spread is None else f"({figure.spread[0]:.2f} to {figure.spread[1]:.2f})"
    goal = "" if row["goal"] is None else f"goal {row['goal']}: {'met' if row['met'] else 'MISSED'}"
    name = f"{figure.workload:<30} {figure.who:<22}"
    return f"{name}{figure.value:>12.3f} {figure.unit:<8}{ratio:>9} {spread:<20} {goal}".rstrip()
