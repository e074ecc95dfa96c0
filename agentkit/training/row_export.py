"""`export_rows`: writes fine-tuning rows of selected runs and conversations."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from agentkit.evals.evaluation_errors import listed
from agentkit.training.row_formats import PREFERENCES, RowFormat, RowWriter
from agentkit.training.row_table import RowTable, check_file
from agentkit.training.training_errors import ExportError
from agentkit.training.training_example import LeftOut, TrainingExample, TrainingSource
from agentkit_prompts.chat_templates.template_finder import GivenTemplate
from agentkit_prompts.errors import PromptError
from agentkit_prompts.hints import with_option_hints
from agentkit_prompts.names import nearest
from agentkit_prompts.tokens.id_tokenizer import GivenTokenizer, IdTokenizer


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Result of an export."""

    rows: int
    """Number of rows in the file."""
    left_out: tuple[LeftOut, ...] = ()
    """Selected sources without a row, with the reasons."""
    excluded: Mapping[str, int] = field(default_factory=dict)
    """Number of sources that are not selected, by the first condition that excludes the source, such as
    `minimum contains=1`."""

    def __str__(self) -> str:
        """Return the report as text: the number of rows, and the reasons of sources without a row."""
        text = "1 row" if self.rows == 1 else f"{self.rows} rows"
        for condition, count in self.excluded.items():
            text += f"; {count} excluded by {condition}"
        if self.left_out:
            problems = listed([f"{each.place}: {each.reason}" for each in self.left_out])
            text += f"; {len(self.left_out)} left out: {problems}"
        return text


@dataclass(frozen=True, slots=True)
class _Selection:
    """Conditions of the exported sources."""

    minimum: Mapping[str, float]
    tags: Collection[str]
    since: datetime | None
    until: datetime | None

    def __post_init__(self) -> None:
        for name, value in (("since", self.since), ("until", self.until)):
            if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
                raise ExportError(f"{name}: expected a datetime with a time zone, got {value!r:.60}", name=name)
        for name, number in self.minimum.items():
            if type(number) not in (int, float):
                raise ExportError(f"minimum: {name}: expected a number, got {number!r:.60}", name=f"minimum.{name}")

    def excluding(self, example: TrainingExample) -> str:
        """Return the first condition that excludes an example; empty if the example is selected."""
        origin = example.origin
        for name, number in self.minimum.items():
            if origin.scores.get(name, float("-inf")) < number:
                return f"minimum {name}={number:g}"
        if self.tags and not set(self.tags) & set(origin.tags):
            return f"tags {', '.join(self.tags)}"
        # A source whose time is unknown is in no period.
        if self.since is not None and (origin.at is None or origin.at < self.since.timestamp()):
            return f"since {self.since.isoformat()}"
        if self.until is not None and (origin.at is None or origin.at >= self.until.timestamp()):
            return f"until {self.until.isoformat()}"
        return ""


@dataclass(slots=True)
class _Names:
    """Names of scores and tags of all sources, with which the names of the selection are compared."""

    scores: dict[str, None] = field(default_factory=dict)
    tags: dict[str, None] = field(default_factory=dict)

    def add(self, example: TrainingExample) -> None:
        self.scores.update(dict.fromkeys(example.origin.scores))
        self.tags.update(dict.fromkeys(example.origin.tags))

    def check(self, selection: _Selection, prefer: str | None) -> None:
        """Refuse names that no source has, which are mistyped.

        Raises:
            ExportError: Lists all unknown names.
        """
        scores = [*selection.minimum, *([prefer] if prefer is not None else [])]
        problems = [("score", _unknown("score", name, self.scores)) for name in scores if name not in self.scores]
        problems += [("tag", _unknown("tag", name, self.tags)) for name in selection.tags if name not in self.tags]
        if problems:
            raise ExportError("; ".join([text for _, text in problems]), name=problems[0][0], problems=problems)


def _unknown(kind: str, name: str, names: Collection[str]) -> str:
    return f"unknown {kind} {name!r:.60}{nearest(name, names)}"


@with_option_hints
def export_rows(
    sources: Iterable[TrainingSource],
    out: str | os.PathLike[str],
    *,
    format: RowFormat = "messages",
    chat_template: GivenTemplate | None = None,
    tokenizer: GivenTokenizer | None = None,
    minimum: Mapping[str, float] | None = None,
    tags: Collection[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    prefer: str | None = None,
    on_source: Callable[[TrainingSource], object] | None = None,
) -> ExportReport:
    """Write fine-tuning rows, and replace the file only when all rows are written.

    A source with media has no row. A source that is erased until the file is complete has no row either.

    Args:
        sources: Sources of `evaluated_runs`, `stored_runs` or `conversation_answers`; several are chained.
        out: File of JSON lines; Parquet if its name ends in `.parquet` (extra `parquet`). OpenAI documents no further
            fields, so that the sources of its rows are in a second file, `NAME.origins.jsonl`, line by line.
        format: Format of the rows; see `RowFormat`.
        chat_template: Chat template of the text of a row, for the formats `messages` and `trl`.
        tokenizer: Tokenizer of the ids of a row; see `Composition.to_sample`.
        minimum: Minimum scores of a run, by the names of the scores.
        tags: Tags of which a run must have one.
        since: Only runs that started at this time or later.
        until: Only runs that started before this time.
        prefer: Score that chooses the better answer of a row, for preference pairs.
        on_source: Receives each source after it was read.

    Raises:
        ExportError: An argument is invalid, or the file cannot be written; no file was written.
    """
    path = Path(out)
    ids = None if tokenizer is None else IdTokenizer.of(tokenizer)
    writer = RowWriter(format, chat_template, ids)
    if prefer is None and format in PREFERENCES:
        raise ExportError(
            f"prefer: the format {format} needs the name of the score that chooses the better answer", name="prefer"
        )
    if prefer is not None and format not in PREFERENCES:
        pairs_formats = ", ".join(sorted(PREFERENCES))
        raise ExportError(
            f"prefer: the format {format} has no pairs; formats with pairs: {pairs_formats}", name="prefer"
        )
    selection = _Selection(dict(minimum or {}), tuple(tags), since, until)
    check_file(path)
    names = _Names()
    left_out: list[LeftOut] = []
    excluded: Counter[str] = Counter()
    pairs = _Pairs(writer, prefer or "", left_out, excluded)
    has_origin = not format.startswith("openai")
    with RowTable(path, has_origin=has_origin) as table:
        for source in sources:
            if on_source is not None:
                on_source(source)
            if isinstance(source, LeftOut):
                left_out.append(source)
                continue
            names.add(source)
            condition = selection.excluding(source)
            if condition:
                excluded[condition] += 1
            elif source.media:
                reason = f"it has media, which rows cannot contain: {', '.join(source.media[:3])}"
                left_out.append(LeftOut(source.origin.place, reason))
            elif prefer is not None:
                pairs.add(source)
            else:
                _add(table, writer, source, left_out)
        names.check(selection, prefer)
        pairs.write(table)
        rows, erased = table.finish()
    if erased:
        reason = f"{erased} rows whose sources were erased during the export"
        left_out.append(LeftOut("export", reason, is_erased=True))
    return ExportReport(rows, tuple(left_out), dict(excluded))


def _add(table: RowTable, writer: RowWriter, example: TrainingExample, left_out: list[LeftOut]) -> None:
    try:
        row = writer.row(example)
    except PromptError as error:
        left_out.append(LeftOut(example.origin.place, str(error)))
        return
    table.add(row, example.origin.data(), example.is_erased)


class _Pairs:
    """The best and the worst run of each row of an evaluation.

    Args:
        writer: Writer of the rows.
        score: Name of the score.
        left_out: Receives the sources without a pair.
        excluded: Receives the number of sources without the score, and of rows whose runs have equal scores.
    """

    def __init__(self, writer: RowWriter, score: str, left_out: list[LeftOut], excluded: Counter[str]) -> None:
        self._writer, self._score, self._left_out, self._excluded = writer, score, left_out, excluded
        self._best: dict[str, TrainingExample] = {}
        self._worst: dict[str, TrainingExample] = {}

    def add(self, example: TrainingExample) -> None:
        """Add a run; a run without the score or without a row has no pair."""
        origin = example.origin
        value = origin.scores.get(self._score)
        if value is None or not origin.row:
            self._excluded[f"prefer {self._score} (without this score)"] += 1
            return
        if origin.turn is not None:
            self._left_out.append(LeftOut(origin.place, "it is a turn of a conversation, whose score is of all turns"))
            return
        best, worst = self._best.get(origin.row), self._worst.get(origin.row)
        if best is None or value > best.origin.scores[self._score]:
            self._best[origin.row] = example
        if worst is None or value < worst.origin.scores[self._score]:
            self._worst[origin.row] = example

    def write(self, table: RowTable) -> None:
        """Write a pair of each row whose runs have different scores."""
        for name, best in self._best.items():
            worst = self._worst[name]
            if best.origin.scores[self._score] == worst.origin.scores[self._score]:
                self._excluded[f"prefer {self._score} (rows with equal scores)"] += 1
                continue
            row = self._writer.pair(best, worst)
            if isinstance(row, str):
                self._left_out.append(LeftOut(f"row {name}", row))
                continue
            origin = {"better": best.origin.data(), "worse": worst.origin.data()}
            table.add(row, origin, _either(best, worst))


def _either(first: TrainingExample, second: TrainingExample) -> Callable[[], bool]:
    return lambda: first.is_erased() or second.is_erased()
