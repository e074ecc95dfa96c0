"""`DatasetReader`: the input columns, the answer column and the splits of a dataset."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from agentkit_prompts.context.items import Example
from agentkit_prompts.errors import InContextError, Problem, Problems, brief, raise_problems
from agentkit_prompts.evaluation.problems import problems_of_error, unknown_names, wrong_type
from agentkit_prompts.evaluation.prompt_template import PromptTemplate

Row: TypeAlias = Mapping[str, Any]
"""Values of a row by the names of columns."""

_NUMBER = r"\s*+(?:(-?\d{1,18}+)\s*+)?+"
_SLICE = re.compile(rf"\[{_NUMBER}:{_NUMBER}(?::{_NUMBER})?+\]")


@dataclass(frozen=True, slots=True)
class DatasetReader:
    """Columns and rows that an evaluation reads from a dataset (`reader_cfg` of the OpenCompass and AISBench
    documents).

    Raises:
        InContextError: A field has an invalid type or value; names all problems.
    """

    input_columns: Sequence[str]
    """Columns of the question: names, or one text of names separated by spaces."""
    output_column: str | None = None
    """Column of the answer, which prompts hide; None without answers."""
    input_template: PromptTemplate | None = None
    """Template of the query for retrieval; by default the query is the input columns, joined by spaces."""
    output_template: PromptTemplate | None = None
    """Template of the answer in a worked example; by default the answer column."""
    train_range: float | str | None = None
    """Rows of the training split that are read; see `part_of`. `test_range` selects rows of the test split."""
    test_range: float | str | None = None
    train_split: str = "train"
    test_split: str = "test"

    def __post_init__(self) -> None:
        names: Any = self.input_columns
        if isinstance(names, str):
            names = tuple(names.split())
        problems = _problems_of_names(names)
        for field, kinds, expected in _FIELDS:
            problems += wrong_type(field, getattr(self, field), kinds, expected)
        for field in ("train_range", "test_range"):
            try:
                part_of(range(0), getattr(self, field))
            except InContextError as error:
                problems += problems_of_error(field, error)
        raise_problems(InContextError, "reader", problems)
        object.__setattr__(self, "input_columns", tuple(names))

    def split(self, dataset: Mapping[str, Sequence[Row]] | Sequence[Row]) -> tuple[Sequence[Row], Sequence[Row]]:
        """Return the training rows and the test rows, each within its range.

        Args:
            dataset: Rows by the name of the split; or rows that are used for both splits.

        Raises:
            InContextError: A split is missing, or no row contains one of the columns; names all problems.
        """
        train: Sequence[Row]
        test: Sequence[Row]
        if isinstance(dataset, Mapping):
            names = dict.fromkeys((self.train_split, self.test_split))
            missing = unknown_names("", names, dataset, "no such split; add it (--rows SPLIT=FILE)")
            raise_problems(InContextError, "rows", missing)
            train, test = dataset[self.train_split], dataset[self.test_split]
        else:
            train = test = dataset
        self.check(train, test)
        return part_of(train, self.train_range), part_of(test, self.test_range)

    def check(self, train: Sequence[Row], test: Sequence[Row]) -> None:
        """Check that some row of each split contains each declared column; `test` can lack the answer column.

        Raises:
            InContextError: Columns are missing; names all of them.
        """
        problems = _problems_of_split("train", train, self.columns)
        problems += _problems_of_split("test", test, self.input_columns)
        raise_problems(InContextError, "rows", problems)

    @property
    def columns(self) -> list[str]:
        """The input columns and the answer column, if any."""
        names = [*self.input_columns]
        if self.output_column is not None:
            names.append(self.output_column)
        return names

    def query(self, row: Row) -> str:
        """Return the question of a row as a query for examples.

        Raises:
            InContextError: Input columns are missing in the row; names all of them.
        """
        if self.input_template is not None:
            return str(self.input_template.item(row))
        missing = [name for name in self.input_columns if name not in row]
        if missing:
            raise InContextError(
                f"a row has no column {', '.join(map(repr, missing))}; columns: {', '.join(map(str, row))}",
                name=", ".join(missing),
            )
        return " ".join([str(row[name]) for name in self.input_columns])

    def example(self, number: int, row: Row) -> Example:
        """Return a row as a worked example for retrievers; the id of the example is the number of the row."""
        answer = ""
        if self.output_template is not None:
            answer = str(self.output_template.item(row))
        elif self.output_column is not None:
            answer = str(row.get(self.output_column))
        return Example(self.query(row), answer, id=str(number))


_FIELDS: tuple[tuple[str, Any, str], ...] = (
    ("output_column", str | None, "one column name or None"),
    ("input_template", PromptTemplate | None, "a PromptTemplate"),
    ("output_template", PromptTemplate | None, "a PromptTemplate"),
    ("train_split", str, "text"),
    ("test_split", str, "text"),
)


def _problems_of_names(names: object) -> Problems:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return [Problem("input_columns", f"must be column names, got {brief(names)}")]
    if not names:
        return [Problem("input_columns", "empty; name at least one column")]
    return []


def _problems_of_split(split: str, rows: Sequence[Row], columns: Sequence[str]) -> Problems:
    for number, row in enumerate(rows):
        wrong = wrong_type(f"{split}[{number}]", row, Mapping, "a dict of column to value")
        if wrong:
            return wrong
    if not len(rows):
        return []
    names = {str(name) for row in rows for name in row}
    return unknown_names(split, columns, names, "no row has this column")


def part_of(rows: Sequence[Any], size: float | str | None) -> Sequence[Any]:
    """Return a deterministic subset of `rows`.

    Args:
        rows: The rows of a split.
        size: None for all rows; a number of rows, or a share below 1, drawn with the number of rows as seed; or a slice
            such as `"[:16]"`. As in OpenCompass, 0 and numbers that are too large select all rows.

    Raises:
        InContextError: `size` is invalid.
    """
    if size is None:
        return rows
    if isinstance(size, str):
        return [rows[position] for position in range(len(rows))[_slice(size)]]
    if not _is_size(size):
        text = f"{size!r} is not a number of rows, a share below 1, or a slice such as '[:16]'"
        raise InContextError(text, value=brief(size))
    if size <= 0 or size >= len(rows):
        return rows
    count = size if size >= 1 else size * len(rows)
    return _drawn(rows, int(count))


def _drawn(rows: Sequence[Any], count: int) -> Sequence[Any]:
    # The number of rows is the seed, as in OpenCompass, so that the same rows are selected.
    order = list(range(len(rows)))
    Random(count).shuffle(order)
    return [rows[position] for position in order[:count]]


def _slice(text: str) -> slice:
    match = _SLICE.fullmatch(text.strip())
    if match is not None:
        bounds = [None if bound is None else int(bound) for bound in match.groups()]
        if bounds[2] != 0:
            return slice(*bounds)
    problem = f"{text!r:.80} is not a slice; write it as '[start:stop]' or '[start:stop:step]'"
    raise InContextError(problem, value=text)


def _is_size(size: object) -> bool:
    """True for a whole number, or a share below 1."""
    if isinstance(size, float):
        return math.isfinite(size) and (size < 1 or size == int(size))
    return type(size) is int
