"""Text of `docs/benchmarks.md`: the losses, then the tables."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

FigureRow: TypeAlias = dict[str, Any]
"""A figure as `Figure.as_row` returns it."""
SENTENCES = Path(__file__).parent / "sentences.toml"
_OTHERS = re.compile(
    "pydantic-ai|openai-agents|langchain|haystack|agno|llama-index|jinja2|minijinja|FTS5|mem0|qdrant-client|Starlette|"
    "opencompass|numpy|bare query|by hand$"
)
"""Starts of the names of candidates that are not agentkit."""
_SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of agentkit with its limit, and the figures of other libraries with the same limit."""

    figure: FigureRow
    limit: FigureRow | None
    others: Sequence[FigureRow]
    is_first: bool = True
    """True for the first of the figures with the same limit."""

    @property
    def workload(self) -> str:
        """Name of the workload without its number."""
        return re.sub(r"^W\d+ ", "", str(self.figure["workload"]))

    @property
    def name(self) -> str:
        """Name of the workload and, if it is not just agentkit, of the candidate."""
        detail = re.sub(r"^(agentkit|ours)\b,? ?", "", str(self.figure["who"]))
        return f"{self.workload}: {detail}" if detail else self.workload


def is_other(who: str) -> bool:
    """Return True if the candidate is another library."""
    return _OTHERS.match(who) is not None


def _is_library(who: str) -> bool:
    return is_other(who) and who != "by hand"


def rows_of(figures: Sequence[FigureRow]) -> list[Row]:
    """Return the rows of one part, in the order of its figures."""
    by_workload: dict[str, list[FigureRow]] = {}
    for figure in figures:
        by_workload.setdefault(figure["workload"], []).append(figure)
    return [row for group in by_workload.values() for row in _rows_of_workload(group)]


def _rows_of_workload(figures: Sequence[FigureRow]) -> Iterator[Row]:
    """Yield the rows of one workload."""
    size_limit: FigureRow | None = None
    for limit, rated in _segments(figures):
        if rated:
            yield from _rated_rows(limit, rated)
            continue
        if limit is None:
            continue
        if is_other(limit["who"]):
            size_limit = limit  # a size, such as bytes: reported with the next size, without a ratio
            continue
        yield Row(limit, size_limit, ())
        size_limit = None


def _segments(figures: Sequence[FigureRow]) -> Iterator[tuple[FigureRow | None, list[FigureRow]]]:
    """Yield each figure without a ratio, with the figures after it whose ratios it is the limit of."""
    limit: FigureRow | None = None
    rated: list[FigureRow] = []
    for figure in figures:
        if figure["ratio"] is not None:
            rated.append(figure)
            continue
        yield limit, rated
        limit, rated = figure, []
    yield limit, rated


def _rated_rows(limit: FigureRow | None, rated: Sequence[FigureRow]) -> Iterator[Row]:
    others = [figure for figure in rated if is_other(figure["who"])]
    ours = [figure for figure in rated if not is_other(figure["who"])]
    if not ours:  # such as a server by hand, which has its own limit
        ours = [others.pop(0)]
    for number, figure in enumerate(ours):
        yield Row(figure, limit, () if number else others, number == 0)


# Losses


@dataclass(frozen=True, slots=True)
class Loss:
    """A row that misses its goal, or that another library does faster."""

    row: Row
    reasons: Sequence[str]
    """The goal, and the libraries with their ratios."""

    @property
    def sentence(self) -> str:
        """The measured work; also of rows that are not in a table."""
        return _sentence(self.row.figure["workload"], of_table=False)

    @property
    def text(self) -> str:
        """The figure and the reasons."""
        ratio = self.row.figure["ratio"]
        value = _value(self.row.figure) if ratio is None else f"x{_short(ratio)}"
        return f"{self.row.name} {value} ({', '.join(self.reasons)})"


def losses(rows: Sequence[Row]) -> Iterator[Loss]:
    """Yield each missed goal, and each row that another library does faster."""
    others: Sequence[FigureRow] = ()
    for row in rows:
        figure, ratio = row.figure, row.figure["ratio"]
        if row.is_first:
            others = row.others
        reasons = []
        if figure["met"] is False:
            reasons.append(f"goal {_goal(figure)}")
        if ratio is not None and not is_other(figure["who"]):
            faster = [other for other in others if other["ratio"] < ratio and _is_library(other["who"])]
            reasons += [f"{other['who']} x{_short(other['ratio'])}" for other in faster]
            if row.limit is not None and _is_library(row.limit["who"]) and ratio > 1:
                reasons.append(f"{row.limit['who']} x1")
        if reasons:
            yield Loss(row, reasons)


def loss_table(title: str, part: Sequence[Loss]) -> Iterator[str]:
    """Yield a line for each kind of work of a part: the work, the rows that lose, and their share of a model call."""
    for sentence, group in groupby(part, key=lambda loss: loss.sentence):
        lost = list(group)
        share = _share(sentence, [loss.row for loss in lost]) or "memory or size"
        yield f"| **{title}.** {sentence} | {'; '.join([loss.text for loss in lost])} | {share} |"


def matters(loss: Loss) -> bool:
    """Return True if the row takes at least a hundredth of a model call of one second, in each model call."""
    return _share(loss.sentence, [loss.row]).endswith(": matters")


# Tables


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of one part: a sentence per kind of row, then the table.

    Rows without a sentence are not on the page, except as losses: a page has at most 2,500 words.
    """
    rows = [row for row in rows if _sentence(row.figure["workload"])]
    if not rows:
        return
    for sentence, group in groupby(rows, key=lambda row: _sentence(row.figure["workload"])):
        part = list(group)
        share = _share(sentence, part)
        yield f"- *{_common_name(part)}*: {sentence}" + (f" {share}." if "%" in share else "")
    yield ""
    yield "| | limit | agentkit | times | goal | others |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        yield f"| {' | '.join(_cells(row))} |"
    yield ""


def _common_name(rows: Sequence[Row]) -> str:
    """Return the words at the start of the names of all workloads."""
    words = [row.workload.split() for row in rows]
    common = [group[0] for group in zip(*words, strict=False) if len(set(group)) == 1]
    return " ".join(common[: len(words[0])]).rstrip(",") or rows[0].workload


def _cells(row: Row) -> list[str]:
    limit = ""
    if row.limit is not None and row.is_first:
        limit = f"{row.limit['who']} {_value(row.limit)}".removeprefix("limit ")
    figure = row.figure
    ratio = "" if figure["ratio"] is None else f"x{_short(figure['ratio'])}"
    if ratio and figure["spread"] is not None:
        ratio += f" ({_short(figure['spread'][0])}–{_short(figure['spread'][1])})"
    goal = ""
    if figure["goal"] is not None:
        goal = f"{_goal(figure)} {'met' if figure['met'] else '**missed**'}"
    others = ", ".join([f"{other['who']} x{_short(other['ratio'])}" for other in row.others])
    return [row.name, limit, _value(figure), ratio, goal, others]


def _goal(figure: FigureRow) -> str:
    return str(figure["goal"]).removeprefix("at most ").replace("at least ", "≥ ")


def _value(figure: FigureRow) -> str:
    unit = figure["unit"]
    space = "" if unit in _SECONDS else " "
    return f"{_short(figure['value'])}{space}{unit}".rstrip()


def _short(number: float) -> str:
    """Return a number with three digits."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


@cache
def _sentences() -> dict[str, str]:
    return tomllib.loads(SENTENCES.read_text("utf-8"))


def _sentence(workload: str, *, of_table: bool = True) -> str:
    """Return the sentence of a workload; a table leaves out a workload whose first sentence is empty."""
    for pattern, sentence in _sentences().items():
        if fnmatchcase(workload, pattern) and (sentence or of_table):
            return sentence
    return ""


def _share(sentence: str, rows: Sequence[Row]) -> str:
    """Return the largest share of agentkit in a model call of one second, or how often the work is done."""
    once = re.search(r"once per \w+", sentence)
    if once:
        return once[0]
    seconds = [
        row.figure["value"] * _SECONDS[row.figure["unit"]]
        for row in rows
        if row.figure["unit"] in _SECONDS and not is_other(row.figure["who"])
    ]
    if not seconds:
        return ""
    calls = re.search(r"\(([0-9,]+) model calls\)", sentence)
    share = 100 * max(seconds) / (int(calls[1].replace(",", "")) if calls else 1)
    verdict = "does not matter" if share < 0.1 else "hardly matters" if share < 1 else "matters"
    percent = f"{share:.2g}" if share < 100 else _short(share)
    return f"{percent}%: {verdict}"
