"""Limit of the money of an evaluation: its check before the first request, and the costs of runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.evals.evaluation_errors import EvaluationError
from agentkit.evals.model_judge import Judge
from agentkit.evals.outcome import Outcome
from agentkit.evals.run_scores import ScoreFunction
from agentkit.evals.simulated_user import ModelUser, SimulatedUser
from agentkit.models.model import NO_USAGE, Model, Usage
from agentkit.models.model_names import resolved_model
from agentkit.models.prices import check_prices


def check_limit(money: float, models: Iterator[Model]) -> None:
    """Refuse a limit that is no sum of money, or that cannot be checked."""
    if not (isinstance(money, int | float) and 0 < money < math.inf):
        raise EvaluationError(f"money: expected US dollars above 0, or None, got {money!r:.40}", name="money")
    check_prices(EvaluationError, f"money={money:g}", models)


def models_of(
    agent: Agent[Any, Any], scores: Mapping[str, ScoreFunction], user: SimulatedUser | None, options: Mapping[str, Any]
) -> Iterator[Model]:
    """Yield the models of an evaluation: of its runs and their summaries, its judges and its simulated user."""
    yield resolved_model(options.get("model", agent.chain.model))
    if agent.definition.summary_model is not None:
        yield agent.definition.summary_model
    for score in scores.values():
        if isinstance(score, Judge):
            yield score.agent.chain.model
    if isinstance(user, ModelUser):
        yield user.agent.chain.model


def check_price(*usages: Usage) -> None:
    """Refuse usage without a cost, because the limit of money cannot be checked."""
    for usage in usages:
        if usage.money is None and usage != NO_USAGE:
            raise EvaluationError("money: the price of the model is unknown; pass the price to the model", name="money")


def money_of(outcome: Outcome) -> float:
    """Return the US dollars of a run with its scores and its simulated user."""
    return (outcome.usage.money or 0.0) + (outcome.overhead.money or 0.0)
