"""Measurement of every benchmark: CPU time of the process, limit and peers interleaved, order swapped each round.

A candidate is a function that does its work `n` times, with a different input each time. The first candidate of a
workload is its limit, the same work written by hand; the results of other candidates are multiples of the limit.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

__all__ = ["Figure", "Work", "figures", "interleave", "kib_each", "main"]

Work: TypeAlias = Callable[[int], object]
"""A function that does its work `n` times."""


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
    goal: str = ""
    met: bool | None = None

    def with_goal(self, goal: str, met: bool) -> Figure:
        """Return a copy of the figure with a goal; `met` is True if the figure meets the goal."""
        return replace(self, goal=goal, met=met)


def interleave(candidates: Mapping[str, Work], n: int, rounds: int = 9) -> dict[str, float]:
    """Return the median CPU seconds of one unit of work, per candidate."""
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for work in candidates.values():
        work(max(1, n // 10))  # warm
    for number in range(rounds):
        for name in list(candidates)[:: 1 if number % 2 else -1]:
            gc.collect()
            start = time.process_time()
            candidates[name](n)
            samples[name].append((time.process_time() - start) / n)
    return {name: statistics.median(times) for name, times in samples.items()}


def figures(
    workload: str, seconds: Mapping[str, float], *, unit: str = "µs", goals: Mapping[str, float] | None = None
) -> list[Figure]:
    """Return measured seconds as figures; `goals` contains the maximum multiple of the limit, per name."""
    scale = {"s": 1.0, "ms": 1e3, "µs": 1e6}[unit]
    limit = next(iter(seconds.values()))
    rows = []
    for position, (name, value) in enumerate(seconds.items()):
        ratio = value / limit if position else None
        goal = (goals or {}).get(name)
        met = None if goal is None or ratio is None else ratio <= goal
        rows.append(Figure(workload, name, value * scale, unit, ratio, f"at most x{goal:g}" if goal else "", met))
    return rows


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
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    options = parser.parse_args()
    measured_figures = [figure for name in options.workload or workloads for figure in workloads[name](options.rounds)]
    if options.json:
        print(json.dumps([asdict(figure) for figure in measured_figures]))
        return
    for figure in measured_figures:
        ratio = f"x{figure.ratio:.2f}" if figure.ratio is not None else ""
        goal = f"goal {figure.goal}: {'met' if figure.met else 'MISSED'}" if figure.goal else ""
        print(
            f"{figure.workload:<30}{figure.who:<16}{figure.value:>12.3f} {figure.unit:<8}{ratio:>9}   {goal}".rstrip()
        )
