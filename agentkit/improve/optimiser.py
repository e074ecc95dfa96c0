"""`optimise`: searches better texts for named parts of an agent."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Sequence
from concurrent.futures import Future
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.evals.eval_row import EvalRow, Rows, input_problems, read_rows
from agentkit.evals.evaluation_errors import RowsError
from agentkit.evals.evaluation_runner import evaluate
from agentkit.evals.run_scores import ScoreFunction
from agentkit.ground.sync_driver import run_blocking
from agentkit.ground.threads import in_thread
from agentkit.improve.example_choice import input_key, split_rows
from agentkit.improve.improve_errors import ImproveError
from agentkit.improve.optimisation import Optimisation
from agentkit.improve.prompt_search import OptimiseBudget, PromptSearch
from agentkit.improve.reflection import Reflection
from agentkit.improve.source_files import SourceFiles
from agentkit.improve.text_parts import agent_of, chosen_parts, with_texts
from agentkit.models.model import Model
from agentkit.models.prices import check_prices


async def optimise(
    agent: Agent[Any, Any] | LoadedAgent,
    rows: Rows,
    scores: Sequence[ScoreFunction],
    *,
    parts: Sequence[str],
    held_out: Rows | float = 0.3,
    model: Model | str | None = None,
    budget: OptimiseBudget | int = 20,
    **options: Any,
) -> Optimisation:
    """Search better texts for named parts of an agent with GEPA, and compare both on held-out rows.

    A model reads runs of train rows and proposes a text for a part. A text that cannot replace the part is refused: a
    prompt must read the same names and require the same kwargs. Worked examples are not proposed by the model: they are
    drawn from runs of train rows with perfect scores. Nothing is written; see `Optimisation.apply`.

    Args:
        agent: The agent, or the agent of `load_agent`, whose file can receive texts too.
        rows: The rows; see `evaluate`.
        scores: The scores; see `evaluate`. The mean of the scores of a row is maximised.
        parts: Names of the parts that can change; see `part_texts`. All other texts stay.
        held_out: Rows for the comparison only, or their share of `rows`; the same rows are held out in each call.
        model: The model that proposes texts; the model of the agent by default.
        budget: Maximum number of proposals, or an `OptimiseBudget`.
        **options: Options of `evaluate`, such as `concurrency` or `deps`.

    Raises:
        ImproveError: A part or the budget is invalid, rows are too few or held out and trained on, or `gepa` is
            missing, and nothing was sent; or no run of a train row received a reply, and no text was proposed.
        RowsError: Rows are invalid; nothing was sent.
        ScoresFailed: A score raised an exception or returned no number.
    """
    original = agent_of(agent)
    chosen = chosen_parts(original, parts)
    limits = _checked_budget(budget)
    refused = sorted(options.keys() & {"out", "repeats", "money", "progress"})
    if refused:
        raise ImproveError(f"optimise: {', '.join(refused)} cannot be set for the runs of a search", name=refused[0])
    train, compared = _split(original, rows, held_out)
    files = SourceFiles(agent, chosen)
    reflection = Reflection(model if model is not None else original.chain.model)
    if limits.money is not None:
        models = (original.chain.model, original.definition.summary_model, reflection.agent.chain.model)
        check_prices(ImproveError, f"budget.money={limits.money:g}", filter(None, models))
    calls = _LoopCalls()
    search = PromptSearch(original, chosen, train, scores, reflection, limits, calls, options)
    try:
        texts = await in_thread(search.best)
    except asyncio.CancelledError:
        search.is_stopped = True
        calls.cancel()
        raise
    changed = with_texts(original, chosen, texts)
    before = await evaluate(original, compared, scores, **options)
    after = before
    if texts != {part.name: part.text for part in chosen}:
        after = await evaluate(changed, compared, scores, **options)
    usage = search.usage + reflection.usage + before.usage + before.overhead
    if after is not before:
        usage += after.usage + after.overhead
    return Optimisation(
        changed, texts, before, after, search.proposals, tuple(search.refused), usage, tuple(chosen), files
    )


def optimise_sync(
    agent: Agent[Any, Any] | LoadedAgent,
    rows: Rows,
    scores: Sequence[ScoreFunction],
    *,
    parts: Sequence[str],
    **options: Any,
) -> Optimisation:
    """Optimise an agent from code that is not async; see `optimise`."""
    return run_blocking(optimise(agent, rows, scores, parts=parts, **options))


class _LoopCalls:
    """Runs coroutines of a thread in the event loop that created this object."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._current: Future[Any] | None = None

    def __call__(self, coroutine: Awaitable[Any]) -> Any:
        async def main() -> Any:
            return await coroutine

        self._current = asyncio.run_coroutine_threadsafe(main(), self._loop)
        return self._current.result()

    def cancel(self) -> None:
        """Cancel the current coroutine."""
        if self._current is not None:
            self._current.cancel()


def _checked_budget(budget: OptimiseBudget | int) -> OptimiseBudget:
    if type(budget) is int:
        budget = OptimiseBudget(budget)
    if not isinstance(budget, OptimiseBudget):
        raise ImproveError(
            f"budget: expected a number of proposals or an OptimiseBudget, got {budget!r:.40}", name="budget"
        )
    problems: list[tuple[str, str]] = []
    for name in ("proposals", "model_calls"):
        value = getattr(budget, name)
        if not (value is None and name == "model_calls") and (type(value) is not int or value < 1):
            problems.append((f"budget.{name}", f"expected a whole number of 1 or more, got {value!r:.40}"))
    money = budget.money
    if money is not None and not (isinstance(money, int | float) and 0 < money < math.inf):
        problems.append(("budget.money", f"expected US dollars above 0, got {money!r:.40}"))
    if problems:
        text = "; ".join([f"{place}: {problem}" for place, problem in problems])
        raise ImproveError(text, name=problems[0][0], problems=problems)
    return budget


def _split(agent: Agent[Any, Any], rows: Rows, held_out: Rows | float) -> tuple[list[EvalRow], list[EvalRow]]:
    """Return train rows and held-out rows."""

    def problems_of(row: EvalRow) -> list[tuple[str, str]]:
        return input_problems(row, agent.chain.preflight)

    train = read_rows(rows, EvalRow, problems_of)
    if isinstance(held_out, int | float):
        return split_rows(train, held_out)
    try:
        compared = read_rows(held_out, EvalRow, problems_of)
    except RowsError as error:
        problems = [(f"held_out {place}", text) for place, text in error.problems]
        raise RowsError(problems, path=error.path) from error
    inputs = {input_key(row) for row in train}
    both = [row.id for row in compared if input_key(row) in inputs]
    if both:
        raise ImproveError(
            f"held_out: rows {', '.join(both[:5])} are train rows too: their scores would measure nothing",
            name="held_out",
            value=both[0],
        )
    return train, compared
