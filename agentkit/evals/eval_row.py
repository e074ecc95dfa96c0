"""`EvalRow`: a row of an evaluation of an agent, and the reader of rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentkit.evals.evaluation_errors import RowsError
from agentkit.model_evaluation.row_files import load_rows
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.prompt_context import UserInput
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.errors import ContextError, InContextError, KwargsError, MessageError, PromptError, brief
from agentkit_prompts.invalid_values import invalid_values

_KWARG = "kwargs."
"""Prefix of the columns of a table that contain additional kwargs."""


class EvalRow(BaseModel):
    """One row: an input, and the answer that is expected."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    input: str | tuple[Part, ...]
    """Input of the user: text, or parts with media; in files, a list of parts in the format of OpenAI."""
    id: str = ""
    """Id, unique in the evaluation; the number of the row, from 1, if empty."""
    expected: Any = None
    """The expected answer, for scores that compare it."""
    additional_kwargs: dict[str, Any] = Field(default_factory=dict)
    history: tuple[Message, ...] = ()
    """Messages before the input; in files, messages in the format of OpenAI."""
    user: str = ""
    """User for whom the run acts."""
    script: tuple[str, ...] = ()
    """Further inputs of the user, one per turn after the turn of `input`."""
    goal: str = ""
    """Goal of a user whom a model plays; see `ModelUser`."""
    tags: tuple[str, ...] = ()
    """Names of the slices to which the row belongs."""

    @field_validator("input", mode="plain")
    @classmethod
    def _input(cls, value: Any) -> str | tuple[Part, ...]:
        is_list = isinstance(value, list | tuple)
        if not isinstance(value, str) and not (is_list and value):
            raise ValueError(f"expected text, or a list of content parts, got {brief(value, 60)}")
        try:
            if is_list and all(isinstance(part, Mapping) for part in value):
                (message,) = read_messages([{"role": "user", "content": list(value)}], where="input", form="openai")
                return message.content
            return UserInput(value).input
        except (ContextError, MessageError) as error:
            raise ValueError(str(error)) from error

    @field_validator("history", mode="before")
    @classmethod
    def _history(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and not all(isinstance(each, Message) for each in value):
            try:
                return read_messages(value, where="history", form="openai")
            except MessageError as error:
                raise ValueError(str(error)) from error
        return value

    @field_validator("id", mode="before")
    @classmethod
    def _id(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value

    @property
    def text(self) -> str:
        """The input as text; media are replaced by their alt text."""
        return self.user_input.text

    @property
    def user_input(self) -> UserInput:
        """The input of the run."""
        return UserInput(self.input, additional_kwargs=self.additional_kwargs)


AnyRow = TypeVar("AnyRow", bound=EvalRow)
RowsFile: TypeAlias = str | os.PathLike[str]
"""A file of rows (`.yaml`, `.jsonl`, `.json`, `.csv`, `.tsv`)."""
Rows: TypeAlias = RowsFile | Iterable[EvalRow | Mapping[str, Any]]
"""A file of rows, or the rows themselves."""
RowProblems: TypeAlias = Callable[[AnyRow], Iterable[tuple[str, str]]]
"""Function that returns column and text of each problem of a row."""


def input_problems(row: EvalRow, preflight: Callable[[Mapping[str, Any]], object]) -> list[tuple[str, str]]:
    """Return column and text of each problem of the input of a row.

    Args:
        row: The row.
        preflight: Function that raises `PromptError` if the agent cannot accept the fields of a `UserInput`.
    """
    try:
        # A mapping: it is cheaper than a `UserInput`, which most agents do not need here.
        preflight({"input": row.input, "additional_kwargs": row.additional_kwargs})
    except KwargsError as error:
        return [(f"additional_kwargs.{name}", problem) for name, (problem, _) in error.problems.items()]
    except PromptError as error:
        return [("input", str(error))]
    return []


def read_rows(rows: RowsFile | Iterable[object], kind: type[AnyRow], problems_of: RowProblems[AnyRow]) -> list[AnyRow]:
    """Return valid rows with unique ids.

    A table has the columns `input`, `id`, `expected`, `user`, `tags` (separated by spaces) and `kwargs.NAME`.

    Args:
        rows: The rows, or their file.
        kind: Type of the rows.
        problems_of: Function that returns the problems of a valid row.

    Raises:
        RowsError: The file cannot be read, or rows are invalid. The error lists all problems with row and column.
    """
    problems: list[tuple[str, str]] = []
    valid_rows: list[AnyRow] = []
    ids: set[str] = set()
    for number, entry in enumerate(_entries(rows), 1):
        row = _row(number, entry, kind, problems)
        if row is None:
            continue
        if row.id in ids:
            problems.append((f"row {number}.id", f"duplicate id {row.id!r:.60}"))
        ids.add(row.id)
        problems += [(f"row {number}.{column}", problem) for column, problem in problems_of(row)]
        valid_rows.append(row)
    if not valid_rows and not problems:
        problems.append(("rows", "no rows"))
    if problems:
        raise RowsError(problems)
    return valid_rows


def _entries(rows: RowsFile | Iterable[object]) -> list[Any]:
    """Return the rows of a file, or the rows themselves, as mappings or `EvalRow`."""
    if not isinstance(rows, str | os.PathLike):
        return list(rows)
    path = Path(rows)
    try:
        if path.suffix.lower() in (".yaml", ".yml"):
            return _yaml_rows(path)
        loaded = load_rows(path)
    except InContextError as error:
        raise RowsError([("rows", str(error))], path=str(path)) from error
    if isinstance(loaded, Mapping):
        raise RowsError([("rows", f"{path}: expected a list of rows, got splits by name")], path=str(path))
    if path.suffix.lower() in (".csv", ".tsv"):
        return [_table_row(row) for row in loaded]
    return list(loaded)


def _yaml_rows(path: Path) -> list[Any]:
    import yaml

    from agentkit_prompts.strict_yaml import StrictLoader
    from agentkit_prompts.system.regular_files import read_regular_text

    try:
        rows = yaml.load(read_regular_text(path), StrictLoader)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise RowsError([("rows", f"{path}: cannot be read: {error}")], path=str(path)) from error
    if not isinstance(rows, list):
        kind = type(rows).__name__
        raise RowsError([("rows", f"{path}: expected a list of rows, got {kind}")], path=str(path))
    return rows


def _table_row(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table as an entry: every cell is text, and an empty cell is left out."""
    entry: dict[str, Any] = {}
    for name, cell in cells.items():
        if name.startswith(_KWARG) and name != _KWARG:
            entry.setdefault("additional_kwargs", {})[name.removeprefix(_KWARG)] = cell
        elif name == "tags":
            entry["tags"] = tuple(cell.split())
        elif cell or name == "input":
            entry[name] = cell
    return entry


def _row(number: int, entry: Any, kind: type[AnyRow], problems: list[tuple[str, str]]) -> AnyRow | None:
    """Return a row with an id; None, and its problems, if it is invalid."""
    if isinstance(entry, kind):
        if entry.id:
            return entry
        return entry.model_copy(update={"id": str(number)})
    if not isinstance(entry, Mapping):
        problems.append((f"row {number}", f"expected a mapping such as {{input: ...}}, got {type(entry).__name__}"))
        return None
    fields = dict(entry)
    if fields.get("id", "") == "":
        fields["id"] = str(number)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        for problem in invalid_values(error, fields, kind):
            place = ".".join(filter(None, (f"row {number}", problem.place)))
            problems.append((place, problem.message()))
        return None
