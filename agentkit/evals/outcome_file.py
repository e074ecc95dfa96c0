"""`OutcomeFile`: the outcomes of an evaluation in a file of JSON lines, and the journals of its runs."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import TypeAdapter

from agentkit.evals.eval_row import EvalRow
from agentkit.evals.evaluation_errors import EvaluationError
from agentkit.evals.evaluation_report import EvaluationReport
from agentkit.evals.outcome import Outcome
from agentkit.evals.run_scores import Score
from agentkit.evals.stored_run import StoredRun
from agentkit.model_evaluation.answer_file import AnswerFile, AnswerLine, Key, as_json, read_answers
from agentkit.models.model import NO_USAGE, Usage
from agentkit_prompts.errors import InContextError
from agentkit_prompts.invalid_values import reason_of

_SALT_KEY = (-1, 0)
"""Key of the line with the random part of the ids of the runs."""
_BATCH_ROW = -2
"""Row in the keys of lines with batches."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch of requests that was sent to a provider."""

    number: int
    """Number of the batch in the file, from 0."""
    id: str
    """Id of the batch at the provider."""
    digests: Mapping[str, str]
    """Hashes of the requests, by key."""
    is_done: bool = False
    """True if its results were evaluated."""


class OutcomeFile:
    """The file of the outcomes of one evaluation, locked against other processes.

    Args:
        path: Path of the file, which is created if missing.
        conditions: Name and version of the agent, and names of the scores with versions of judges; they must be the
            same in each call.

    Raises:
        InContextError: The file belongs to another evaluation, is corrupt, cannot be written, or is locked.
        EvaluationError: The file is missing, but the folder of its journals is not.
    """

    def __init__(self, path: str | os.PathLike[str], conditions: dict[str, Any]) -> None:
        self._file = AnswerFile(path, conditions)
        self.path = self._file.path
        self._runs = _runs_folder(self.path)
        try:
            self._runs.mkdir(mode=0o700, exist_ok=True)
            line = self._file.answers.get(_SALT_KEY)
            if line is None:
                if any(self._runs.iterdir()):
                    raise self._missing_file_error()
                line = {"row": _SALT_KEY[0], "part": _SALT_KEY[1], "salt": os.urandom(16).hex()}
                self._file.write(as_json(line))
            self._salt = str(line["salt"])
        except OSError as error:
            self._file.close()
            raise InContextError(f"out: {self._runs}: {error.strerror}", path=str(self._runs)) from error
        except BaseException:
            self._file.close()
            raise

    def _missing_file_error(self) -> EvaluationError:
        return EvaluationError(
            f"out: {self._runs} contains the journals of an evaluation whose file {self.path} is missing or new: "
            f"restore {self.path.name}, delete the folder {self._runs.name}, or pass another out=",
            path=str(self._runs),
            name="out",
        )

    @property
    def batches(self) -> list[StoredBatch]:
        """The batches, in the order in which they were sent."""
        lines = [line for (row, _), line in self._file.answers.items() if row == _BATCH_ROW]
        return [StoredBatch(line["part"], line["batch"], line["digests"], line["is_done"]) for line in lines]

    def store_batch(self, batch: StoredBatch) -> None:
        """Write a batch, or its new state."""
        line = {
            "row": _BATCH_ROW,
            "part": batch.number,
            "batch": batch.id,
            "digests": batch.digests,
            "is_done": batch.is_done,
        }
        self._file.write(as_json(line))
        self._file.answers[_BATCH_ROW, batch.number] = line

    def run(self, key: Key, row: EvalRow, part: str = "") -> StoredRun:
        """Return the id and the journal of a run.

        Args:
            key: Numbers of the row and of the repeat.
            row: The row.
            part: Part of the outcome that the run contributes, such as a score; empty for the run of the agent.
        """
        # The id is the same after a restart, so that idempotency keys are the same too.
        text = f"{self._salt}\0{key[0]}\0{key[1]}\0{_digest(row)}"
        if part:
            text += f"\0{part}"
        run_id = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return StoredRun(run_id, _journal(self._runs, key, part))

    def stored(self, key: Key, row: EvalRow) -> Outcome | None:
        """Return the stored outcome of a run; None if it is not stored.

        Raises:
            EvaluationError: The row was changed since, or the stored outcome is invalid.
        """
        line = self._file.answers.get(key)
        if line is None:
            run = self.run(key, row)
            if run.has_journal and _run_id(run.journal) not in (run.run_id, ""):
                raise self._changed_row_error(row)
            return None
        if line.get("digest") != _digest(row):
            raise self._changed_row_error(row)
        return _outcome(line, row, self.path)

    def _changed_row_error(self, row: EvalRow) -> EvaluationError:
        return EvaluationError(
            f"{self.path}: row {row.id!r:.60} was changed since its run: pass another out=, or restore the row",
            path=str(self.path),
            name="rows",
        )

    def store(self, key: Key, outcome: Outcome) -> None:
        """Write an outcome, which survives a kill of this process."""
        line = {
            "row": key[0],
            "part": key[1],
            "id": outcome.row.id,
            "input": outcome.row.text,
            "expected": outcome.row.expected,
            "tags": outcome.row.tags,
            "user": outcome.row.user,
            "digest": _digest(outcome.row),
            "run_id": outcome.run_id,
            "output": outcome.output,
            "error": outcome.error,
            "scores": {name: [score.value, score.reason] for name, score in outcome.scores.items()},
            "score_usage": {
                name: asdict(score.usage) for name, score in outcome.scores.items() if score.usage != NO_USAGE
            },
            "overhead": asdict(outcome.overhead),
            "usage": asdict(outcome.usage),
            "steps": outcome.steps,
            "seconds": outcome.seconds,
        }
        self._file.write(as_json(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()


def read_report(path: str | os.PathLike[str]) -> EvaluationReport:
    """Return the report of a file that `evaluate` wrote. Its rows have input, expected answer and tags.

    Raises:
        EvaluationError: The file cannot be read, or is not a file of an evaluation of an agent.
    """
    return _report(*_stored_outcomes(path))


def read_journals(path: str | os.PathLike[str]) -> tuple[EvaluationReport, list[tuple[Path, ...]]]:
    """Return the report of a file that `evaluate` wrote, and for each outcome the journals of its turns.

    Raises:
        EvaluationError: See `read_report`.
    """
    conditions, outcomes = _stored_outcomes(path)
    folder = _runs_folder(Path(path))
    return _report(conditions, outcomes), [tuple(_turns(folder, key)) for key in outcomes]


def _report(conditions: Mapping[str, Any], outcomes: Mapping[Key, Outcome]) -> EvaluationReport:
    return EvaluationReport(
        str(conditions.get("agent", "")), list(outcomes.values()), version=str(conditions.get("version", ""))
    )


def _stored_outcomes(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[Key, Outcome]]:
    """Return the conditions and the outcomes of a file, by row and repeat."""
    try:
        conditions, answers = read_answers(path)
    except InContextError as error:
        raise EvaluationError(str(error), name=error.name, path=error.path) from error
    outcomes: dict[Key, Outcome] = {}
    for key, line in sorted(answers.items()):
        if key[0] < 0:
            continue
        try:
            names = ("id", "input", "expected", "tags", "user")
            row = EvalRow(**{name: line[name] for name in names})
        except (KeyError, TypeError, ValueError) as error:
            raise _invalid_outcome(path, str(line.get("id", key[0])), error) from error
        outcomes[key] = _outcome(line, row, path)
    return conditions, outcomes


def _runs_folder(file: Path) -> Path:
    return file.with_name(f"{file.name}.runs")


def _journal(folder: Path, key: Key, part: str = "") -> Path:
    """Return the file of the journal of a run."""
    name = f"{key[0] + 1}-{key[1] + 1}"
    if part:
        name += f".{part}"
    return folder / f"{name}.jsonl"


def _turns(folder: Path, key: Key) -> Iterator[Path]:
    """Yield the journals of the turns of a row."""
    yield _journal(folder, key)
    for turn in count(2):
        path = _journal(folder, key, f"turn{turn}")
        if not path.exists():
            return
        yield path


def _run_id(journal: Path) -> str:
    """Return the id of the run of a journal; empty if the first line was cut short.

    Raises:
        EvaluationError: The file is no journal.
    """
    with journal.open("rb") as file:
        line = file.readline()
    if not line.endswith(b"\n"):
        return ""
    try:
        # The input can contain a lone surrogate, which only `json` reads.
        return str(json.loads(line)["run_id"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise EvaluationError(
            f"{journal}: the journal of a run is corrupt ({type(error).__name__}): restore the file, or delete it to "
            "start the run again",
            path=str(journal),
            name="out",
        ) from error


def _outcome(line: AnswerLine, row: EvalRow, path: str | os.PathLike[str]) -> Outcome:
    """Return the outcome of a line.

    Raises:
        EvaluationError: The line is invalid.
    """
    read_usage = _usages().validate_python
    try:
        usages = {name: read_usage(usage) for name, usage in line["score_usage"].items()}
        scores = {
            name: Score(float(value), str(reason), usages.get(name, NO_USAGE))
            for name, (value, reason) in line["scores"].items()
        }
        if not all(math.isfinite(score.value) for score in scores.values()):
            raise ValueError("a score is not finite")
        return Outcome(
            row,
            line["part"],
            str(line["run_id"]),
            output=line["output"],
            error=str(line["error"]),
            scores=scores,
            usage=read_usage(line["usage"]),
            steps=int(line["steps"]),
            seconds=float(line["seconds"]),
            overhead=read_usage(line["overhead"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise _invalid_outcome(path, row.id, error) from error


@lru_cache(maxsize=1)
def _usages() -> TypeAdapter[Usage]:
    """Return the reader of usages."""
    return TypeAdapter(Usage)


def _invalid_outcome(path: str | os.PathLike[str], row: str, error: Exception) -> EvaluationError:
    text = f"{path}: the stored outcome of row {row!r:.60} is invalid ({reason_of(error)}): remove its line"
    return EvaluationError(text, path=str(path))


def _digest(row: EvalRow) -> str:
    """Return a hash of the fields of a row that an outcome depends on."""
    history = [repr(each) for each in row.history]
    fields = (row.id, row.input, row.expected, row.additional_kwargs, row.user, history, row.script, row.goal)
    return hashlib.blake2b(as_json(fields), digest_size=8).hexdigest()
