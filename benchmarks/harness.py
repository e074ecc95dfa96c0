"""How every benchmark measures: CPU time of the process, limit and peers interleaved, order swapped each round.

A candidate is a function that does its work `n` times, with a different input each time. The first candidate of a
workload is its limit, the same work written by hand; the others are given as multiples of it.
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
"""Does something `n` times."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number."""

    workload: str
    """What was measured, such as `W2 run`."""
    who: str
    value: float
    unit: str
    ratio: float | None = None
    """Multiple of the limit; None for the limit itself, and without a limit."""
    goal: str = ""
    met: bool | None = None

    def with_goal(self, goal: str, met: bool) -> Figure:
        """Return the figure with a goal, and whether it is met."""
        return replace(self, goal=goal, met=met)


def interleave(candidates: Mapping[str, Work], n: int, rounds: int = 9) -> dict[str, float]:
    """Return the median CPU seconds that one piece of work takes, per candidate."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for work in candidates.values():
        work(max(1, n // 10))  # warm
    for number in range(rounds):
        for name in list(candidates)[:: 1 if number % 2 else -1]:
            gc.collect()
            start = time.process_time()
            candidates[name](n)
            taken[name].append((time.process_time() - start) / n)
    return {name: statistics.median(times) for name, times in taken.items()}


def figures(
    workload: str, seconds: Mapping[str, float], *, unit: str = "µs", goals: Mapping[str, float] | None = None
) -> list[Figure]:
    """Return measured seconds as figures; `goals` gives, per name, the largest multiple of the limit."""
    scale = {"s": 1.0, "ms": 1e3, "µs": 1e6}[unit]
    limit = next(iter(seconds.values()))
    made = []
    for position, (name, value) in enumerate(seconds.items()):
        ratio = value / limit if position else None
        goal = (goals or {}).get(name)
        met = None if goal is None or ratio is None else ratio <= goal
        made.append(Figure(workload, name, value * scale, unit, ratio, f"at most x{goal:g}" if goal else "", met))
    return made


def kib_each(make: Callable[[], object], n: int = 1000) -> float:
    """Return the KiB that one object holds on to, as `tracemalloc` counts them."""
    make()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [make() for _ in range(n)]
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / 1024 / len(kept)


def main(about: str | None, workloads: Mapping[str, Callable[[int], Iterable[Figure]]]) -> None:
    """Measure the workloads named on the command line (all of them, when none is) and print a table or JSON."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("workload", nargs="*", choices=[[], *workloads], help=f"of {', '.join(workloads)}")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    options = parser.parse_args()
    measured = [figure for name in options.workload or workloads for figure in workloads[name](options.rounds)]
    if options.json:
        print(json.dumps([asdict(figure) for figure in measured]))
        return
    for figure in measured:
        ratio = f"x{figure.ratio:.2f}" if figure.ratio is not None else ""
        goal = f"goal {figure.goal}: {'met' if figure.met else 'MISSED'}" if figure.goal else ""
        print(
            f"{figure.workload:<30}{figure.who:<16}{figure.value:>12.3f} {figure.unit:<8}{ratio:>9}   {goal}".rstrip()
        )
