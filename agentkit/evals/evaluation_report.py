"""`EvaluationReport`: outcomes of the rows of an evaluation, their statistics, and reports for people and for CI."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from agentkit.evals.evaluation_errors import EvaluationError, listed
from agentkit.evals.outcome import Outcome
from agentkit.evals.report_comparison import (
    RowChange,
    ScoreDifference,
    changed_rows,
    difference_rows,
    differences,
    minimum_of,
)
from agentkit.evals.run_scores import Score
from agentkit.evals.score_statistics import Interval, mean_interval, pass_all, pass_at
from agentkit.models.model import NO_USAGE, Usage
from agentkit_prompts.errors import shortened
from agentkit_prompts.names import nearest

_MARKUP = re.compile(r"([\\|`*<\[\]])")
"""Characters that are no plain text in Markdown."""
_BACKSLASH = r"\\\1"
_MAX_CELL = 60
"""Maximum characters of a cell of a table."""
_MAX_ROWS = 20
"""Maximum number of failed rows in a report for people."""


@dataclass(frozen=True, slots=True)
class ScoreProblem:
    """A score without a value for one run."""

    row: str
    """Id of the row."""
    repeat: int
    """Number of the run of the row, from 0."""
    score: str
    """Name of the score."""
    error: Exception
    """The exception of the score, such as a `JudgeError`."""

    def __str__(self) -> str:
        place = f"row {self.row}"
        if self.repeat:
            place += f", repeat {self.repeat}"
        text = str(self.error)
        if not isinstance(self.error, EvaluationError):
            text = f"{type(self.error).__name__}: {text}"
        return f"{place}, score {self.score}: {text}"


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """Statistics of one score."""

    name: str
    rows: int
    """Number of rows."""
    interval: Interval
    """Mean over the rows, each row with the mean of its repeats, and its interval of 95 %."""
    pass_at: Mapping[int, float]
    """pass@k by k: the probability that at least one of k runs has the score 1. Empty if a value is not 0 or 1."""
    pass_all: Mapping[int, float]
    """pass^k by k: the probability that all of k runs have the score 1. Empty if a value is not 0 or 1."""


@dataclass(frozen=True, slots=True, repr=False)
class EvaluationReport:
    """Outcomes of an evaluation, in the order of the rows and repeats."""

    agent: str
    """Name of the agent."""
    outcomes: Sequence[Outcome]
    problems: Sequence[ScoreProblem] = ()
    """Scores that raised an exception or returned no number."""
    reused: int = 0
    """Number of outcomes that the file contained already."""
    version: str = ""
    """Version of the agent, see `Journal.version`; empty if it is unknown."""

    def __repr__(self) -> str:
        # Short: asyncio writes the result of a finished task into messages, also if no message is shown.
        return f"EvaluationReport(agent={self.agent!r}, {len(self.outcomes)} outcomes)"

    @property
    def score_names(self) -> list[str]:
        """Names of the scores."""
        return list(dict.fromkeys(name for outcome in self.outcomes for name in outcome.scores))

    @property
    def tags(self) -> list[str]:
        """Tags of the rows, sorted."""
        return sorted({tag for outcome in self.outcomes for tag in outcome.row.tags})

    @property
    def usage(self) -> Usage:
        """Usage of all runs."""
        return sum((outcome.usage for outcome in self.outcomes), Usage())

    @property
    def overhead(self) -> Usage:
        """Usage of the judges and the simulated user, which is no part of `usage`."""
        return sum((outcome.overhead for outcome in self.outcomes), Usage())

    @property
    def failures(self) -> list[Outcome]:
        """Outcomes of runs that failed."""
        return [outcome for outcome in self.outcomes if outcome.error]

    def values(self, score: str, tag: str | None = None) -> dict[str, list[float]]:
        """Return the values of a score by the ids of the rows, one value per repeat.

        Args:
            score: Name of the score.
            tag: Only rows with this tag.

        Raises:
            EvaluationError: The score is unknown.
        """
        if score not in self.score_names:
            names = self.score_names
            raise EvaluationError(f"unknown score {score!r:.80}{nearest(score, names)}", name="score", value=score)
        values: dict[str, list[float]] = {}
        for outcome in self.outcomes:
            if score in outcome.scores and (tag is None or tag in outcome.row.tags):
                values.setdefault(outcome.row.id, []).append(outcome.scores[score].value)
        return values

    def summary(self, score: str, tag: str | None = None) -> ScoreSummary:
        """Return the statistics of a score; see `values`."""
        values = self.values(score, tag)
        interval = mean_interval([math.fsum(each) / len(each) for each in values.values()])
        repeats = min(map(len, values.values()), default=0)
        passes: dict[int, float] = {}
        passes_all: dict[int, float] = {}
        if repeats > 1 and all(value in (0, 1) for each in values.values() for value in each):
            for tries in range(1, repeats + 1):
                counts = [(int(sum(each)), len(each)) for each in values.values()]
                passes[tries] = math.fsum(pass_at(*count, tries) for count in counts) / len(counts)
                passes_all[tries] = math.fsum(pass_all(*count, tries) for count in counts) / len(counts)
        return ScoreSummary(score, len(values), interval, passes, passes_all)

    def compare(self, before: EvaluationReport) -> list[ScoreDifference]:
        """Return the differences to an earlier evaluation of the same rows, for each score of both, paired by row.

        A row with the same id and another input or expected answer is left out.

        Raises:
            EvaluationError: The evaluations have no score or no row in common.
        """
        return differences(self.outcomes, before.outcomes)

    def changes(self, before: EvaluationReport) -> list[RowChange]:
        """Return the rows with another score than in an earlier evaluation, the largest loss first; see `compare`."""
        return changed_rows(self.outcomes, before.outcomes)

    def below(self, thresholds: Mapping[str, float | str], before: EvaluationReport | None = None) -> list[str]:
        """Return the scores whose mean is below a threshold, as text.

        Args:
            thresholds: Minimum mean by the name of the score; or `before`, or `before-0.02`: the mean of the earlier
                evaluation on the same rows, with an allowed loss.
            before: The earlier evaluation.

        Raises:
            EvaluationError: A score or a threshold is unknown.
        """
        texts: list[str] = []
        changes: dict[str, ScoreDifference] = {}
        for name, threshold in thresholds.items():
            mean, mean_before = self.summary(name).interval.mean, None
            if isinstance(threshold, str) and before is not None:
                before.values(name)  # raises if the earlier evaluation has no such score
                if not changes:
                    changes = {each.name: each for each in self.compare(before)}
                mean, mean_before = changes[name].after, changes[name].before
            minimum = minimum_of(threshold, mean_before)
            # NaN is below every threshold.
            if not mean >= minimum:
                detail = ""
                if isinstance(threshold, str):
                    detail = f" ({threshold})"
                texts.append(f"{name} is {mean:.3f}, below {minimum:.3g}{detail}")
        return texts

    # Texts

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table of the scores, with a header: all rows first, then each tag."""
        repeats = max((outcome.repeat for outcome in self.outcomes), default=0) + 1
        head = ["score", "rows", "mean", "95 %"]
        if repeats > 1:
            head += [f"pass@{repeats}", f"pass^{repeats}"]
        table = [tuple(head)]
        for name in self.score_names:
            for tag in (None, *self.tags):
                summary = self.summary(name, tag)
                interval = summary.interval
                label = name if tag is None else f"{name} ({tag})"
                cells = [label, str(summary.rows), f"{interval.mean:.3f}", f"{interval.low:.3f} to {interval.high:.3f}"]
                if repeats > 1:
                    cells += [_number(each.get(repeats)) for each in (summary.pass_at, summary.pass_all)]
                table.append(tuple(cells))
        return table

    def __str__(self) -> str:
        """Return the table of the scores as text, with the number of failed runs and the first error."""
        table = aligned(self.rows())
        if not self.failures:
            return table
        return f"{table}\n{failures_line(self.outcomes)}"

    def markdown(self, before: EvaluationReport | None = None) -> str:
        """Return the report as Markdown: the table of the scores, the costs, and the rows with the lowest scores.

        Args:
            before: An earlier evaluation, for a table of the differences and of the rows that changed.

        Raises:
            EvaluationError: The evaluations have no score or no row in common.
        """
        lines = _markdown_table(self.rows())
        lines += ["", f"{len(self.outcomes)} runs of {self.agent}; {self._costs()}; {len(self.failures)} runs failed."]
        worst = self._worst()
        if worst:
            cells = [
                (outcome.row.id, name, f"{score.value:g}", short_line(outcome.error or score.reason))
                for outcome, name, score in worst
            ]
            lines += ["", *_markdown_table([("row", "score", "value", "reason"), *cells])]
        if before is not None:
            lines += ["", "Compared with the earlier evaluation, row by row:", ""]
            lines += _markdown_table(difference_rows(self.compare(before)))
            changes = self.changes(before)
            if changes:
                lines += ["", *_markdown_table(change_rows(changes))]
        return "\n".join(lines) + "\n"

    def junit(self, thresholds: Mapping[str, float | str], before: EvaluationReport | None = None) -> str:
        """Return the report as JUnit XML: one test per threshold, which fails if the mean of the score is lower.

        Args:
            thresholds: See `below`.
            before: See `below`.

        Raises:
            EvaluationError: A score or a threshold is unknown.
        """
        cases: list[str] = []
        failed = 0
        for name, threshold in thresholds.items():
            problems = self.below({name: threshold}, before)
            body = ""
            if problems:
                failed += 1
                reasons = [(outcome.row.id, outcome.error or score.reason) for outcome, _, score in self._worst(name)]
                text = escape(_printable("\n".join([f"{row}: {short_line(reason)}" for row, reason in reasons])))
                body = f"<failure message={_xml_attribute(problems[0])}>{text}</failure>"
            cases.append(
                f"<testcase classname={_xml_attribute(self.agent)} name={_xml_attribute(name)}>{body}</testcase>"
            )
        counts = f'tests="{len(cases)}" failures="{failed}"'
        suite = f"<testsuite name={_xml_attribute(self.agent)} {counts}>{''.join(cases)}</testsuite>"
        return f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites>{suite}</testsuites>\n'

    def _costs(self) -> str:
        costs = _cost(self.usage)
        overhead = self.overhead
        if overhead != NO_USAGE:
            costs += f"; judges and simulated users: {_cost(overhead)}"
        return costs

    def _worst(self, name: str | None = None) -> list[tuple[Outcome, str, Score]]:
        """Return the lowest scores below 1, at most one page."""
        scores = [
            (outcome, score_name, score)
            for outcome in self.outcomes
            for score_name, score in outcome.scores.items()
            if score.value < 1 and name in (None, score_name)
        ]
        return sorted(scores, key=lambda entry: entry[2].value)[:_MAX_ROWS]


class ScoresFailed(EvaluationError):
    """Scores raised an exception or returned no number for some rows. All rows were run.

    Attributes:
        report: The report, without the missing values.
    """

    def __init__(self, report: EvaluationReport) -> None:
        texts = [str(problem) for problem in report.problems]
        places = [f"row {problem.row}" for problem in report.problems]
        super().__init__(f"scores failed: {listed(texts)}", problems=list(zip(places, texts, strict=True)))
        self.report = report


class EvaluationStopped(EvaluationError):
    """The evaluation reached its limit of money before all rows were run. The same call with a higher limit continues.

    Attributes:
        report: The report of the rows that were run.
    """

    def __init__(self, report: EvaluationReport, money: float, limit: float) -> None:
        super().__init__(
            f"the evaluation stopped at {money:.4g} of {limit:g} US dollars after {len(report.outcomes)} runs: raise "
            "money=, and call it again with the same out=, which runs only the other rows",
            name="money",
        )
        self.report = report


def _cost(usage: Usage) -> str:
    money = "cost unknown" if usage.money is None else f"{usage.money:.4g} US dollars"
    return f"{usage.input_tokens + usage.output_tokens:,} tokens, {money}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def short_line(text: str) -> str:
    """Return a text on one line, or its start with dots."""
    return shortened(" ".join(text.split()), _MAX_CELL)


def failures_line(outcomes: Sequence[Outcome]) -> str:
    """Return the number of failed runs, which is at least 1, and the first error."""
    failures = [outcome for outcome in outcomes if outcome.error]
    first = failures[0]
    count = f"{len(failures)} of {len(outcomes)} runs failed"
    return f"{count}; row {first.row.id}: {' '.join(first.error.split()):.300}"


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Return a table as text with columns of equal width."""
    table = [[" ".join(cell.split()) for cell in row] for row in table]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = ["  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]) for row in table]
    return "\n".join([line.rstrip() for line in lines])


def change_rows(changes: Sequence[RowChange]) -> list[tuple[str, ...]]:
    """Return a table of the rows that changed most, with a header."""
    table: list[tuple[str, ...]] = [("row", "score", "before", "after", "reason")]
    for change in changes[:_MAX_ROWS]:
        values = f"{change.before:g}", f"{change.after:g}"
        table.append((change.row, change.score, *values, short_line(change.reason)))
    return table


def _markdown_table(table: Sequence[Sequence[str]]) -> list[str]:
    head, *rows = table
    return [_markdown_row(head), _markdown_row(["---"] * len(head)), *map(_markdown_row, rows)]


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join([_MARKUP.sub(_BACKSLASH, ' '.join(cell.split())) for cell in cells])} |"


def _xml_attribute(text: str) -> str:
    return quoteattr(_printable(text))


def _printable(text: str) -> str:
    """Return text without control characters, which XML cannot contain: they become spaces."""
    return "".join([char if char.isprintable() or char == "\n" else " " for char in text])
