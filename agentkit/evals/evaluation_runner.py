"""`evaluate`: runs an agent on rows, and scores the results."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from agentkit.agent.agent import Agent
from agentkit.errors import AgentDefinitionError, DepsMismatch
from agentkit.evals.batch_model import BatchModel, batch_problems, checked_batches, request_key
from agentkit.evals.eval_row import EvalRow, Rows, input_problems, read_rows
from agentkit.evals.evaluation_errors import EvaluationError, check_counts, usage_of
from agentkit.evals.evaluation_report import EvaluationReport, EvaluationStopped, ScoreProblem, ScoresFailed
from agentkit.evals.model_judge import Judge
from agentkit.evals.money_limit import check_limit, check_price, models_of, money_of
from agentkit.evals.named_scores import named_scores, score_versions, warn_of_doubts
from agentkit.evals.outcome import Outcome
from agentkit.evals.outcome_file import OutcomeFile
from agentkit.evals.row_run import RowRun
from agentkit.evals.row_scoring import RowScoring
from agentkit.evals.run_scores import Score, ScoreFunction, json_of
from agentkit.evals.simulated_user import ModelUser, SimulatedUser, user_version
from agentkit.evals.stored_run import StoredRun
from agentkit.evals.worker_runs import WORKER_OPTIONS, WorkerRuns
from agentkit.ground.sync_driver import run_blocking
from agentkit.model_evaluation.evaluation_result import EvaluationProgress
from agentkit.model_evaluation.evaluation_run import first_error
from agentkit.model_evaluation.progress_bar import OnProgress, progress_listener
from agentkit.model_evaluation.request_pace import RequestPace
from agentkit.models.model_errors import ModelError
from agentkit.run.engine.run_options import RUN, RunOptions, check_options
from agentkit.run.engine.run_result import RunResult
from agentkit.runs.run_errors import DatabaseUnavailable
from agentkit_prompts.errors import InContextError

if TYPE_CHECKING:
    from agentkit.durable.runs_facade import Runs

_OPTIONS = RUN - {"journal", "run_id", "history", "session"}
"""Options of runs that an evaluation accepts: it sets the other options for each row."""
_COMMON_ERRORS = (AgentDefinitionError, DepsMismatch, DatabaseUnavailable)
"""Errors of the agent, the options and the database, which all runs have in common."""
_ROWS_AT_A_TIME = 64
"""Number of runs of a worker after which other tasks can run, even if nothing waits."""


async def evaluate(
    agent: Agent[Any, Any],
    rows: Rows,
    scores: Sequence[ScoreFunction],
    *,
    repeats: int = 1,
    concurrency: int = 8,
    rate: float | None = None,
    money: float | None = None,
    out: str | os.PathLike[str] | None = None,
    database: Runs | str | None = None,
    simulated_user: SimulatedUser | None = None,
    batch: bool = False,
    progress: bool | OnProgress = False,
    **options: Unpack[RunOptions[Any, Any]],
) -> EvaluationReport:
    """Run an agent on every row, and return the outcomes with their scores.

    A run that fails is an outcome with an error, and each of its scores is 0.

    Args:
        agent: The agent.
        rows: A file of rows (`.yaml`, `.jsonl`, `.json`, `.csv`, `.tsv`), or rows: each an `EvalRow`, or a mapping with
            its fields.
        scores: Functions of a row and the result of its run, with different names; also async functions.
        repeats: Runs of each row.
        concurrency: Maximum number of concurrent runs.
        rate: Maximum number of runs that start per second; None for no limit.
        money: Maximum US dollars of all runs, judges and simulated users: no further row starts after it is spent. None
            for no limit.
        out: File of JSON lines that stores the outcome of every finished run at once, and next to it a folder
            `NAME.runs` with a journal per run. A call with an existing file continues: stored outcomes are not run
            again, and a run that failed or was interrupted, such as by a kill, continues from its journal.
        database: Database of durable runs, such as `sqlite:///runs.db`, whose workers execute the runs of the agent; or
            the `Runs` to which the agent was added. It needs `out`: the evaluation continues after a kill of this
            process or of a worker. The options are then `deps`, `scope`, `tenant`, `user` and `locale`. None to
            execute the runs in this process.
        simulated_user: A `ModelUser`, a `ScriptedUser` or a function of the row and the results of its turns, which
            returns the next input of the user, or None at the end. The scores receive a `ConversationResult`. A row
            with a `script` follows its script. None: rows without a script have one turn.
        batch: True to send the requests in batches of OpenAI or Anthropic, which take up to a day and cost half the
            price. The agent must need one request per row: no tools and one turn; a typed answer is not repaired.
            `out` is required: after an interruption, the next call waits for the batches that were sent.
        progress: True for a progress bar on stderr (extra `cli`); or a function that receives an `EvaluationProgress`
            after every run.
        **options: Options of each run, such as `deps`; see `RunOptions`. A row with a user sets `user`.

    Raises:
        RowsError: Rows are invalid; nothing was sent. The error lists all problems.
        EvaluationError: Another argument is invalid, or the file belongs to another evaluation; nothing was sent.
        ScoresFailed: A score raised an exception or returned no number. The error contains the report.
        EvaluationStopped: The limit of money was reached. The error contains the report.
        ModelError: The SDK of the model is not installed; or the provider refused a batch, or cannot be reached.
        DatabaseUnavailable: The database does not respond.
    """
    functions = named_scores(scores)
    if database is None:
        check_options("evaluate", options, _OPTIONS)
    else:
        check_options("evaluate", options, WORKER_OPTIONS)
        _check_database(out, batch)
    check_counts(repeats=repeats, concurrency=concurrency)
    if simulated_user is not None and not callable(simulated_user):
        raise EvaluationError(
            f"simulated_user: expected a ModelUser, a ScriptedUser or a function, got {simulated_user!r:.60}",
            name="simulated_user",
        )

    def problems_of(row: EvalRow) -> list[tuple[str, str]]:
        return [*input_problems(row, agent.chain.preflight), *_goal_problems(row, simulated_user)]

    valid_rows = read_rows(rows, EvalRow, problems_of)
    batches, run_options = None, dict(options)
    if batch:
        problems = batch_problems(valid_rows, simulated_user, rate, money, out)
        batches, run_options["limits"] = checked_batches(agent, options, problems)
    if money is not None:
        check_limit(money, models_of(agent, functions, simulated_user, options))
    warn_of_doubts(functions, agent, options)
    try:
        pace = RequestPace(rate)
        with ExitStack() as stack:
            file = None
            if out is not None:
                file = stack.enter_context(OutcomeFile(out, _conditions(agent, functions, simulated_user)))
            workers = None
            if database is not None:
                workers = WorkerRuns(database, agent, options.get("deps"))
                stack.callback(workers.close)
            listener = stack.enter_context(progress_listener(progress, len(valid_rows) * repeats))
            batch_model = None
            if batches is not None and file is not None:
                batch_model = run_options["model"] = BatchModel(batches, file)
            evaluation = _Evaluation(
                agent,
                valid_rows,
                functions,
                pace=pace,
                money=money,
                file=file,
                listener=listener,
                user=simulated_user,
                batch_model=batch_model,
                options=run_options,
                workers=workers,
            )
            return await evaluation.report(repeats, concurrency)
    except InContextError as error:
        raise EvaluationError(str(error), name=error.name, path=error.path) from error


def _check_database(out: str | os.PathLike[str] | None, batch: bool) -> None:
    """Refuse options with which workers of a database cannot execute the runs."""
    if out is None:
        raise EvaluationError(
            "database: the ids of the runs are in the file of the outcomes: pass out= too", name="out"
        )
    if batch:
        raise EvaluationError("batch: workers of database= send no batches: pass one of them", name="batch")


def _goal_problems(row: EvalRow, user: SimulatedUser | None) -> list[tuple[str, str]]:
    if row.script or row.goal or not isinstance(user, ModelUser) or user.goal:
        return []
    return [("goal", "the row has no goal, and ModelUser has none: add the goal of the user")]


def _conditions(
    agent: Agent[Any, Any], scores: Mapping[str, ScoreFunction], user: SimulatedUser | None
) -> dict[str, Any]:
    """Return the conditions of the outcomes in a file, which must be the same in each call."""
    conditions = {"agent": agent.name, "version": agent.definition.version.id, "scores": score_versions(scores)}
    if user is not None:
        conditions["simulated_user"] = user_version(user)
    return conditions


def evaluate_sync(
    agent: Agent[Any, Any], rows: Rows, scores: Sequence[ScoreFunction], **options: Any
) -> EvaluationReport:
    """Evaluate an agent from code that is not async; see `evaluate`."""
    return run_blocking(evaluate(agent, rows, scores, **options))


class _Evaluation:
    """The runs of one evaluation.

    Args:
        agent: The agent.
        rows: The rows.
        scores: The scores by name.
        pace: Limit of the runs that start per second.
        money: Maximum US dollars; None for no limit.
        file: File of the outcomes; None without a file.
        listener: Receives the progress; None without a listener.
        user: The simulated user; None without one.
        batch_model: The model that sends the requests in batches; None without batches.
        options: Options of each run.
        workers: Workers of a database that execute the runs; None to execute the runs in this process.
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        rows: Sequence[EvalRow],
        scores: Mapping[str, ScoreFunction],
        *,
        pace: RequestPace,
        money: float | None,
        file: OutcomeFile | None,
        listener: OnProgress | None,
        user: SimulatedUser | None,
        batch_model: BatchModel | None,
        options: Any,
        workers: WorkerRuns | None,
    ) -> None:
        self._workers = workers
        self._agent, self._rows, self._scores = agent, rows, scores
        self._positions = {name: number for number, name in enumerate(sorted(scores), 1)}
        self._pace, self._money, self._file, self._listener, self._options = pace, money, file, listener, options
        self._user, self._batch_model = user, batch_model
        self._outcomes: dict[tuple[int, int], Outcome] = {}
        self._problems: list[ScoreProblem] = []
        self._unscored: dict[tuple[int, int], Outcome] = {}
        self._reused = self._failed = 0
        self._spent = 0.0

    async def report(self, repeats: int, concurrency: int) -> EvaluationReport:
        """Run all rows that the file does not contain, and return the report."""
        keys = [(number, repeat) for number in range(len(self._rows)) for repeat in range(repeats)]
        if self._file is not None:
            for key in keys:
                self._reuse(key, self._file)
        missing = [key for key in keys if key not in self._outcomes]
        total = len(keys)
        waiting = iter(missing)
        try:
            if self._batch_model is not None:
                await self._exchange(self._batch_model, missing, concurrency)
            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, len(missing))):
                    group.create_task(self._work(waiting, total))
        except* (EvaluationError, ModelError, *_COMMON_ERRORS) as errors:
            # All workers fail for the same reason.
            raise first_error(errors) from None
        if self._batch_model is not None:
            self._batch_model.close()
        return self._report(keys)

    def _report(self, keys: Sequence[tuple[int, int]]) -> EvaluationReport:
        """Return the report of all runs.

        Raises:
            EvaluationStopped: The limit of money was reached.
            ScoresFailed: A score failed.
        """
        outcomes = [self._outcomes[key] for key in keys if key in self._outcomes]
        order = {row.id: number for number, row in enumerate(self._rows)}
        problems = sorted(self._problems, key=lambda each: (order[each.row], each.repeat, each.score))
        version = self._agent.definition.version.id
        report = EvaluationReport(self._agent.name, outcomes, tuple(problems), self._reused, version)
        if len(outcomes) < len(keys):
            assert self._money is not None
            raise EvaluationStopped(report, self._spent, self._money)
        if self._problems:
            raise ScoresFailed(report)
        return report

    def _reuse(self, key: tuple[int, int], file: OutcomeFile) -> None:
        """Take the outcome of a run from the file, if it is stored."""
        outcome = file.stored(key, self._rows[key[0]])
        # A failed run continues: its error can be temporary.
        if outcome is None or outcome.error:
            return
        if outcome.scores.keys() == self._scores.keys():
            self._outcomes[key] = outcome
            self._reused += 1
        else:
            # A score failed: it is computed again for the result in the journal, without a call of the agent.
            self._unscored[key] = outcome
        self._spent += money_of(outcome)

    def _has_journal(self, key: tuple[int, int]) -> bool:
        """True if the journal of a run is stored: its request was answered."""
        stored = self._stored_run(key)
        return stored is not None and stored.has_journal

    async def _exchange(self, model: BatchModel, keys: Sequence[tuple[int, int]], concurrency: int) -> None:
        """Collect the requests of runs that were not sent, and wait for the replies."""
        sent = model.sent_keys()
        unsent = iter([key for key in keys if _request_key(key) not in sent and not self._has_journal(key)])
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(keys))):
                group.create_task(self._collect(unsent))
        await model.exchange()

    async def _collect(self, unsent: Iterator[tuple[int, int]]) -> None:
        """Collect the requests of runs."""
        for key in unsent:
            stored = self._stored_run(key)
            assert stored is not None
            request_key.set(_request_key(key))
            # The id is a part of some prompts. The run has no journal before its request is answered.
            options = {**self._options, "run_id": stored.run_id}
            run = RowRun(self._agent, self._rows[key[0]], None, options, lambda part: None, self._pace)
            try:
                await run.result()
            except _COMMON_ERRORS:
                raise
            except Exception:
                # The request was collected, or the run fails again when its outcome is created.
                continue

    async def _work(self, waiting: Iterator[tuple[int, int]], total: int) -> None:
        for count, key in enumerate(waiting, 1):
            if self._money is not None and self._spent >= self._money:
                return
            spent_before = 0.0
            if key in self._unscored:
                spent_before = money_of(self._unscored[key])
            outcome = await self._outcome(key)
            self._outcomes[key] = outcome
            self._spent += money_of(outcome) - spent_before
            self._failed += bool(outcome.error)
            if self._file is not None:
                self._file.store(key, outcome)
            if self._listener is not None:
                self._listener(EvaluationProgress(len(self._outcomes), total, self._failed))
            if count % _ROWS_AT_A_TIME == 0:
                await asyncio.sleep(0)

    async def _outcome(self, key: tuple[int, int]) -> Outcome:
        number, repeat = key
        row = self._rows[number]
        result: RunResult[Any] | None = None
        output, error_text = None, ""
        run = RowRun(
            self._agent,
            row,
            self._user,
            self._options,
            lambda part: self._stored_run(key, part),
            self._pace,
            self._workers,
        )
        if self._batch_model is not None:
            request_key.set(_request_key(key))
        try:
            result = await run.result()
            output = json_of(result.output)
        except _COMMON_ERRORS:
            raise
        except Exception as error:
            if isinstance(error.__cause__, ImportError):
                # The SDK of the model is not installed: all runs would fail.
                raise
            # Any other error of the run is an outcome: one failing row does not stop the others.
            error_text = f"{type(error).__name__}: {error}"
            if self._batch_model is not None and self._file is not None:
                # The next call sends the request again.
                self._file.run(key, self._rows[key[0]]).journal.unlink(missing_ok=True)
        scoring = RowScoring(row, {}, run.overhead)
        earlier = self._unscored.get(key)
        if earlier is not None:
            scoring = RowScoring(row, dict(earlier.scores), earlier.overhead)
        for name, function in self._scores.items():
            if result is None:
                scoring.values[name] = Score(0.0, error_text)
            elif name not in scoring.values:
                try:
                    value = self._called(name, function, result, scoring, key)
                    if value is not None:
                        scoring.add(name, await value)
                except Exception as error:
                    scoring.usage += usage_of(error)
                    self._problems.append(ScoreProblem(row.id, repeat, name, error))
        if self._money is not None:
            check_price(run.usage, scoring.usage)
        return Outcome(
            row,
            repeat,
            run.run_id,
            output=output,
            error=error_text,
            scores=scoring.values,
            usage=run.usage,
            steps=run.steps,
            seconds=run.seconds,
            overhead=scoring.usage,
        )

    def _stored_run(self, key: tuple[int, int], part: str = "") -> StoredRun | None:
        """Return the id and the journal of a run; None without a file."""
        if self._file is None:
            return None
        return self._file.run(key, self._rows[key[0]], part)

    def _called(
        self,
        name: str,
        function: ScoreFunction,
        result: RunResult[Any],
        scoring: RowScoring,
        key: tuple[int, int],
    ) -> Awaitable[Any] | None:
        """Call a score, and add its value; return the awaitable of an async score."""
        if isinstance(function, Judge):
            return function.of_run(scoring.row, result, self._stored_run(key, f"score{self._positions[name]}"))
        value: Any = function(scoring.row, result)
        # Most scores are plain functions: their results are recognised without a slow check.
        if not isinstance(value, Score | float | int) and inspect.isawaitable(value):
            return value
        scoring.add(name, value)
        return None


def _request_key(key: tuple[int, int]) -> str:
    return f"{key[0] + 1}-{key[1] + 1}"
