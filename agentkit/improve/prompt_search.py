"""`PromptSearch`: the search of GEPA, on the rows and parts of an agent."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agentkit.agent.agent import Agent
from agentkit.evals.eval_row import EvalRow
from agentkit.evals.evaluation_report import EvaluationReport, failures_line
from agentkit.evals.evaluation_runner import evaluate
from agentkit.evals.outcome import Outcome
from agentkit.evals.run_scores import ScoreFunction
from agentkit.improve.example_choice import choose_examples, mean_score
from agentkit.improve.improve_errors import ImproveError
from agentkit.improve.reflection import Proposal, Reflection
from agentkit.improve.text_parts import EXAMPLES, TextPart, examples_of, examples_text, with_texts
from agentkit.models.model import NO_USAGE, Usage
from agentkit_prompts.extras import install

R = TypeVar("R")
_log = logging.getLogger("agentkit.improve")
_TRIES = 3
"""Maximum number of texts that the model proposes at a time: a refused text is followed by another text."""
_EXAMPLES = 4
"""Number of examples of a prompt that has none."""
_IDLE = 20
"""Number of rounds without a proposal after which the search ends: all runs of these rounds had perfect scores."""


@dataclass(frozen=True, slots=True)
class OptimiseBudget:
    """Limits of an optimisation. The runs of held-out rows at its end are not counted."""

    proposals: int = 20
    """Maximum number of proposed texts, with refused texts."""
    model_calls: int | None = None
    """Maximum number of model calls, of the agent and of the reflecting model."""
    money: float | None = None
    """Maximum US dollars."""


class _Logger:
    def log(self, message: str) -> None:
        """Log a message of the search."""
        _log.debug("%s", message)


class PromptSearch:
    """Searches texts of parts with better scores on train rows.

    Args:
        agent: The agent.
        parts: The parts that can change.
        rows: The train rows.
        scores: The scores.
        reflection: Proposes texts.
        budget: The limits.
        call: Runs a coroutine in the event loop of the caller, and returns its result.
        options: Options of each run.

    Attributes:
        proposals: Number of proposed texts.
        refused: Name of the part and reason of each refused text.
        usage: Usage of the runs and of judges.
    """

    propose_new_texts: Any = None  # an attribute of the protocol of `gepa`, which `__init__` sets

    def __init__(
        self,
        agent: Agent[Any, Any],
        parts: Sequence[TextPart],
        rows: Sequence[EvalRow],
        scores: Sequence[ScoreFunction],
        reflection: Reflection,
        budget: OptimiseBudget,
        call: Callable[[Awaitable[Any]], Any],
        options: Mapping[str, Any],
    ) -> None:
        self._agent, self._parts, self._rows, self._scores = agent, parts, rows, scores
        self._reflection, self._budget, self._call, self._options = reflection, budget, call, options
        self._by_name = {part.name: part for part in parts}
        self._outcomes: dict[tuple[tuple[str, ...], str], Outcome] = {}
        """Outcomes by the texts of the parts and the id of the row: equal texts are run once."""
        self._draw = random.Random(0)
        self._steps = 0
        self._idle = 0
        self._is_perfect = self.is_stopped = False
        self._error: Exception | None = None
        self.proposals = 0
        self.refused: list[tuple[str, str]] = []
        self.usage = Usage()
        self.propose_new_texts = self._propose

    def best(self) -> dict[str, str]:
        """Return the texts with the best mean score on the train rows.

        Raises:
            ImproveError: The package `gepa` is missing.
            Exception: The error of a score or of the reflecting model.
        """
        try:
            from gepa.api import optimize
        except ImportError as error:
            raise ImproveError(f"optimise: the package gepa is missing: {install('improve')}") from error

        search: Any = optimize
        seed = {part.name: part.text for part in self._parts}
        try:
            result = search(
                seed,
                list(self._rows),
                adapter=self,
                stop_callbacks=self._must_stop,
                logger=_Logger(),
                track_best_outputs=False,
                seed=0,
            )
        except Exception:
            # Our error is the cause, which the search may wrap.
            if self._error is not None:
                raise self._error from None
            raise
        if self._error is not None:
            raise self._error
        best: dict[str, str] = dict(result.best_candidate)
        return best

    def _must_stop(self, state: Any) -> bool:
        budget = self._budget
        money = self._spent()
        return (
            self.is_stopped
            or self._error is not None
            or self._is_perfect
            or self._idle > _IDLE
            or self.proposals >= budget.proposals
            or (budget.model_calls is not None and self._steps + self._reflection.calls >= budget.model_calls)
            or (budget.money is not None and money is not None and money >= budget.money)
        )

    def _spent(self) -> float | None:
        """Return the US dollars so far.

        Raises:
            ImproveError: The money is limited, and a price is unknown.
        """
        total = self.usage + self._reflection.usage
        if self._budget.money is not None and total.money is None and total != NO_USAGE:
            raise ImproveError("budget: the price of a model is unknown: pass the price to the model", name="money")
        return total.money

    # The protocol of `gepa`

    def evaluate(self, batch: list[EvalRow], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        """Run rows with the texts of a candidate, and return the scores."""
        from gepa.core.adapter import EvaluationBatch

        outcomes = self._guarded(lambda: self._answered(self._call(self._run(batch, candidate))))
        scores = [mean_score(outcome) for outcome in outcomes]
        if capture_traces:
            self._idle += 1
        # All train rows: the score of a candidate.
        elif len(batch) == len(self._rows) and min(scores) >= 1:
            self._is_perfect = True
        return EvaluationBatch(outcomes, scores, outcomes if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, Outcome]]]:
        """Return the outcomes from which texts are proposed, by the name of the part."""
        rows = [{"outcome": outcome} for outcome in eval_batch.trajectories]
        return dict.fromkeys(components_to_update, rows)

    def _propose(
        self, candidate: dict[str, str], dataset: Mapping[str, Sequence[Mapping[str, Outcome]]], names: list[str]
    ) -> dict[str, str]:
        """Return new texts of parts, without the parts for which all proposals are refused."""
        self._idle = 0
        texts: dict[str, str] = {}
        for name in names:
            outcomes = [row["outcome"] for row in dataset[name]]
            text = self._guarded(lambda: self._proposed(name, candidate[name], outcomes))  # noqa: B023  # called here
            if text != candidate[name]:
                texts[name] = text
        return texts

    # Steps of it

    def _guarded(self, work: Callable[[], R]) -> R:
        """Call a function, and keep its error: the search would log it and continue."""
        try:
            return work()
        except Exception as error:
            self._error = self._error or error
            raise

    def _answered(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Return the outcomes; before the first proposal, at least one run must have received a reply.

        Without a reply every text has the score 0, and proposals would only cost money.
        """
        if self.proposals == 0 and not any(outcome.steps for outcome in outcomes):
            line = failures_line(outcomes)
            raise ImproveError(
                f"agent: no run of a train row received a reply: {line}; repair the agent, or name another model",
                name="agent",
            )
        return outcomes

    async def _run(self, batch: Sequence[EvalRow], candidate: Mapping[str, str]) -> list[Outcome]:
        """Return the outcomes of rows."""
        key = tuple(candidate[part.name] for part in self._parts)
        # A batch can contain a row twice.
        missing = {row.id: row for row in batch if (key, row.id) not in self._outcomes}
        examples = examples_of(candidate[EXAMPLES]) if EXAMPLES in candidate else []
        groups: dict[str | None, list[EvalRow]] = {}
        for row in missing.values():
            # A row that is an example is run without it: its answer would be in the prompt.
            example = next((each.input for each in examples if each.input == row.user_input.text), None)
            groups.setdefault(example, []).append(row)
        for example, rows in groups.items():
            texts = dict(candidate)
            if example is not None:
                texts[EXAMPLES] = examples_text([each for each in examples if each.input != example])
            agent = with_texts(self._agent, self._parts, texts)
            report = await evaluate(agent, rows, self._scores, **self._options)
            for outcome in report.outcomes:
                self._outcomes[key, outcome.row.id] = outcome
                self._steps += outcome.steps
                self.usage += outcome.usage + outcome.overhead
        return [self._outcomes[key, row.id] for row in batch]

    def _proposed(self, name: str, text: str, outcomes: Sequence[Outcome]) -> str:
        part = self._by_name[name]
        if part.kind == "examples":
            return self._other_examples(text)
        refused: Proposal | None = None
        for _ in range(_TRIES):
            if self._must_stop(None):
                break
            self.proposals += 1
            proposal: Proposal = self._call(self._reflection.propose(part, text, outcomes, refused))
            if not proposal.problem:
                return proposal.text
            self.refused.append((name, proposal.problem))
            refused = proposal
        return text

    def _other_examples(self, text: str) -> str:
        """Return other examples of train rows with good scores; the present examples without such a run."""
        self.proposals += 1
        count = len(examples_of(text)) or _EXAMPLES
        report = EvaluationReport(self._agent.name, list(self._outcomes.values()))
        try:
            pool = choose_examples(report, count=len(self._rows))
        except ImproveError as error:
            self.refused.append((EXAMPLES, str(error)))
            return text
        return examples_text(self._draw.sample(pool, min(count, len(pool))))
