"""The scores of an evaluation by name, and their versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.evals.evaluation_errors import EvaluationError, EvaluationWarning
from agentkit.evals.model_judge import Judge
from agentkit.evals.run_scores import NamedScore, ScoreFunction
from agentkit.models.abilities import model_path
from agentkit.models.model_names import resolved_model
from agentkit.models.offline.offline_model import OfflineModel
from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import kind_of


def named_scores(scores: Sequence[ScoreFunction]) -> dict[str, ScoreFunction]:
    """Return the scores by name."""
    functions: dict[str, ScoreFunction] = {}
    if isinstance(scores, str) or not isinstance(scores, Iterable):
        raise EvaluationError(f"scores: expected a list, such as scores=[exact], got {kind_of(scores)}", name="scores")
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


def warn_of_doubts(functions: Mapping[str, ScoreFunction], agent: Agent[Any, Any], options: Mapping[str, Any]) -> None:
    """Warn of scores that have no meaning: the score names an unknown tool, or the offline model answers.

    Args:
        functions: The scores by name.
        agent: The agent.
        options: Options of each run.
    """
    specs = None
    # Tools that each run creates are unknown before the runs.
    if "tools" not in options and not agent.definition.tools.is_per_run:
        specs = {spec.name: spec for spec in agent.specs}
    has_memory = options.get("memory", agent.memory) is not None
    for name, function in functions.items():
        if isinstance(function, NamedScore):
            doubt = function.doubt(specs, has_memory=has_memory)
            if doubt:
                warn(EvaluationWarning(f"score {name}: {doubt}"))
    model = resolved_model(options.get("model", agent.chain.model))
    if isinstance(model_path(model)[-1], OfflineModel):
        warn(EvaluationWarning("the offline model answers, so that the scores have no meaning: name another model"))
