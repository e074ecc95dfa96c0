"""`check_judge`: agreement of a judge with labels of people."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentkit.evals.eval_row import EvalRow, RowsFile, read_rows
from agentkit.evals.evaluation_errors import EvaluationError, check_counts, usage_of
from agentkit.evals.evaluation_report import aligned
from agentkit.evals.model_judge import Judge
from agentkit.evals.score_statistics import Interval, kappa_interval, mean_interval
from agentkit.ground.sync_driver import run_blocking
from agentkit.models.model import NO_USAGE, Usage
from agentkit_prompts.context.messages import Message

_LABELS_OF_PASS: Mapping[str, int] = {"fail": 0, "false": 0, "0": 0, "pass": 1, "true": 1, "1": 1}


class LabelledRow(EvalRow):
    """A row with an answer, and the label of a person for this answer."""

    answer: str
    """The answer that was labelled."""
    label: bool | int | str
    """For pass or fail: True or False, `pass` or `fail`, 1 or 0. For a scale: the level, from 1."""


LabelledRows: TypeAlias = RowsFile | Iterable[LabelledRow | Mapping[str, Any]]
"""Labelled rows: a file of rows, or the rows themselves."""


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """Comparison of a judge with labels."""

    judge: str
    """Name of the judge."""
    names: Sequence[str]
    """Names of the levels of a verdict: `fail` and `pass`, or the numbers of a scale."""
    verdicts: Mapping[str, tuple[int, int]]
    """Positions in `names` of the label and of the verdict, by the id of the row."""
    reasons: Mapping[str, str]
    """Reasons of the judge, by the id of the row."""
    problems: Mapping[str, Exception]
    """The exception of each row without a verdict, such as a `JudgeError`, by the id of the row."""
    usage: Usage
    """Usage of the judge."""

    @property
    def agreement(self) -> Interval:
        """Share of the rows whose verdict equals the label, with its interval of 95 %."""
        return mean_interval([float(label == verdict) for label, verdict in self.verdicts.values()])

    @property
    def kappa(self) -> Interval:
        """Cohen's kappa: agreement beyond chance, with its interval of 95 %; NaN if all labels and verdicts are one
        level.
        """
        return kappa_interval(list(self.verdicts.values()))

    @property
    def weighted_kappa(self) -> Interval:
        """Cohen's kappa with quadratic weights, for scales: a difference of two levels counts as four of one level."""
        return kappa_interval(list(self.verdicts.values()), is_weighted=True)

    @property
    def confusion(self) -> list[list[int]]:
        """Number of rows by the position of the label, and then by the position of the verdict."""
        table = [[0] * len(self.names) for _ in self.names]
        for label, verdict in self.verdicts.values():
            table[label][verdict] += 1
        return table

    @property
    def disagreements(self) -> list[str]:
        """Ids of the rows whose verdict differs from the label, the largest difference first."""
        rows = [row for row, (label, verdict) in self.verdicts.items() if label != verdict]
        return sorted(rows, key=lambda row: -abs(self.verdicts[row][0] - self.verdicts[row][1]))

    def __str__(self) -> str:
        """Return the statistics and the confusion table as text."""
        lines = [f"{self.judge}: {len(self.verdicts)} rows", f"agreement  {self.agreement}", f"kappa      {self.kappa}"]
        if len(self.names) > 2:
            lines.append(f"weighted   {self.weighted_kappa}")
        if self.problems:
            lines.append(f"{len(self.problems)} rows have no verdict")
        table = [["label", *[f"judge {name}" for name in self.names]]]
        table += [[name, *map(str, row)] for name, row in zip(self.names, self.confusion, strict=True)]
        return "\n".join([*lines, aligned(table)])


async def check_judge(judge: Judge, rows: LabelledRows, *, concurrency: int = 8) -> JudgeCheck:
    """Compare a judge with labels of people.

    Args:
        judge: A judge with levels.
        rows: A file of rows (`.yaml`, `.jsonl`, `.json`, `.csv`, `.tsv`) with the columns `input`, `answer`,
            `label` and the other columns of `EvalRow`; or rows, each a `LabelledRow` or a mapping with its fields.
        concurrency: Maximum number of concurrent calls of the judge.

    Raises:
        RowsError: Rows are invalid; nothing was sent. The error lists all problems.
        EvaluationError: Another argument is invalid; nothing was sent.
        JudgeError: The judge returned no valid verdict for any row.
    """
    if not isinstance(judge, Judge):
        raise EvaluationError(
            f"judge: expected judge(model, rubric), got {judge!r:.60}", name="judge", value=type(judge).__name__
        )
    levels = judge.levels
    if levels is None:
        raise EvaluationError(
            "judge: a judge with any number from 0 to 1 has no levels to compare: pass levels=", name="judge"
        )
    check_counts(concurrency=concurrency)

    def label_problems(row: LabelledRow) -> list[tuple[str, str]]:
        if _position(row.label, levels) is not None:
            return []
        expected = f"a level from 1 to {levels}"
        if levels == 2:
            expected = "true or false"
        return [("label", f"expected {expected}, got {row.label!r:.40}")]

    valid_rows = read_rows(rows, LabelledRow, label_problems)
    check = _Check(judge, levels)
    waiting = iter(valid_rows)
    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(valid_rows))):
            group.create_task(check.work(waiting))
    if not check.verdicts:
        # The problem of every row has one reason, such as a missing key.
        raise next(iter(check.problems.values()))
    ids = [row.id for row in valid_rows]
    return JudgeCheck(
        judge.__name__,
        _names(levels),
        {row: check.verdicts[row] for row in ids if row in check.verdicts},
        {row: check.reasons[row] for row in ids if row in check.reasons},
        {row: check.problems[row] for row in ids if row in check.problems},
        check.usage,
    )


def check_judge_sync(judge: Judge, rows: LabelledRows, *, concurrency: int = 8) -> JudgeCheck:
    """Compare a judge with labels from code that is not async; see `check_judge`."""
    return run_blocking(check_judge(judge, rows, concurrency=concurrency))


class _Check:
    """The verdicts of one check so far."""

    def __init__(self, judge: Judge, levels: int) -> None:
        self._judge, self._levels = judge, levels
        self.verdicts: dict[str, tuple[int, int]] = {}
        self.reasons: dict[str, str] = {}
        self.problems: dict[str, Exception] = {}
        self.usage = NO_USAGE

    async def work(self, rows: Iterator[LabelledRow]) -> None:
        """Judge rows until none is left."""
        for row in rows:
            label = _position(row.label, self._levels)
            assert label is not None
            try:
                score = await self._judge.verdict(row, [Message("user", row.input)], row.answer)
            except Exception as error:
                # One row without a verdict does not stop the other rows.
                self.problems[row.id] = error
                usage = usage_of(error)
            else:
                self.verdicts[row.id] = (label, round(score.value * (self._levels - 1)))
                self.reasons[row.id] = score.reason
                usage = score.usage
            self.usage += usage


def _names(levels: int) -> list[str]:
    if levels == 2:
        return ["fail", "pass"]
    return [str(level) for level in range(1, levels + 1)]


def _position(label: bool | int | str, levels: int) -> int | None:
    """Return the position of a label among the levels, from 0; None if the label is invalid."""
    text = str(label).strip().lower()
    if levels == 2:
        return _LABELS_OF_PASS.get(text)
    if text in _names(levels):
        return int(text) - 1
    return None
