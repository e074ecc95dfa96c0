"""`Optimisation`: the changed texts, their scores on held-out rows, and their diff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.evals.evaluation_report import EvaluationReport, aligned, failures_line
from agentkit.evals.report_comparison import ScoreDifference
from agentkit.improve.source_files import SourceFiles
from agentkit.improve.text_parts import TextPart
from agentkit.models.model import Usage


@dataclass(frozen=True, slots=True)
class Optimisation:
    """Result of an optimisation."""

    agent: Agent[Any, Any]
    """The agent with the best texts."""
    texts: Mapping[str, str]
    """Best texts by the name of the part."""
    before: EvaluationReport
    """Outcomes of the original agent on held-out rows."""
    after: EvaluationReport
    """Outcomes of the agent with the best texts on held-out rows."""
    proposals: int
    """Number of proposed texts."""
    refused: Sequence[tuple[str, str]]
    """Name of the part and reason of each text that was refused before it was run."""
    usage: Usage
    """Usage of all runs, of judges and of the reflecting model."""
    _parts: Sequence[TextPart] = field(repr=False)
    _files: SourceFiles = field(repr=False)

    @property
    def changed(self) -> list[str]:
        """Names of the parts whose text changed."""
        return [part.name for part in self._changed]

    @property
    def _changed(self) -> list[TextPart]:
        return [part for part in self._parts if self.texts[part.name] != part.text]

    @property
    def differences(self) -> list[ScoreDifference]:
        """Differences of the scores on held-out rows, paired by row."""
        return self.after.compare(self.before)

    @property
    def is_better(self) -> bool:
        """True if a text changed, and the sum of the score differences on held-out rows is above 0."""
        return bool(self._changed) and sum(each.interval.mean for each in self.differences) > 0

    @property
    def diff(self) -> str:
        """Unified diff of the files; a text without a file has the name of its part."""
        return self._files.diff(self._changed, self.texts)

    def apply(self) -> list[Path]:
        """Write the changed texts into their files, and return the files.

        Raises:
            ImproveError: A text is in no file; nothing was written.
            FilesChanged: A file was changed since the optimisation read it; nothing was written.
            OSError: A file cannot be written.
        """
        return self._files.write(self._changed, self.texts)

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table of the scores on held-out rows, with a header."""
        table: list[tuple[str, ...]] = [("score", "rows", "before", "after", "difference")]
        for each in self.differences:
            intervals = [report.summary(each.name).interval for report in (self.before, self.after)]
            count = str(self.after.summary(each.name).rows)
            table.append((each.name, count, *map(str, [*intervals, each.interval])))
        return table

    def __str__(self) -> str:
        """Return the table, the failed runs, the number of proposals, and the changed parts as text."""
        lines = [aligned(self.rows())]
        if self.before.failures:
            lines.append(f"before: {failures_line(self.before.outcomes)}")
        if self.after.failures and self.after is not self.before:
            lines.append(f"after: {failures_line(self.after.outcomes)}")
        lines.append(
            f"{self.proposals} proposals, {len(self.refused)} refused; changed: {', '.join(self.changed) or 'none'}"
        )
        return "\n".join(lines)
