"""The scores of an evaluation by name, and their versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentkit.evals.evaluation_errors import EvaluationError
from agentkit.evals.model_judge import Judge
from agentkit.evals.run_scores import ScoreFunction

__all__ = ["named_scores", "score_versions"]


def named_scores(scores: Sequence[ScoreFunction]) -> dict[str, ScoreFunction]:
    """Return the scores by name."""
    functions: dict[str, ScoreFunction] = {}
    for function in scores:
        if not callable(function):
            raise EvaluationError(
                f"scores: expected functions of a row and a result, got {function!r:.60}", name="scores"
            )
        name = getattr(function, "__name__", None) or type(function).__name__
        if name in functions:
            raise EvaluationError(
                f"scores: two scores have the name {name!r:.60}: give one another name", name="scores", value=name
            )
        functions[name] = function
    if not functions:
        raise EvaluationError("scores: expected at least one score, such as scores=[exact]", name="scores")
    return functions


def score_versions(functions: Mapping[str, ScoreFunction]) -> list[str]:
    """Return the names of scores, and the versions of judges."""
    names: list[str] = []
    for name, function in functions.items():
        version = ""
        if isinstance(function, Judge):
            version = f" {function.agent.definition.version.id}"
        names.append(f"{name}{version}")
    return sorted(names)
