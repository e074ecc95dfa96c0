"""The page of an agent as JSON: its inputs, layers and tools, and statistics of its newest runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any

from agentkit.agent.agent import Agent
from agentkit.inspector.composition_view import clipped, template_text
from agentkit.runs.run_record import RunFigures

_PERCENTILES = (50, 90, 99)
_MAX_DAYS = 30
"""Maximum days of the table; days without runs are left out."""

Json = dict[str, Any]


def agent_view(agent: Agent[Any, Any], figures: Sequence[RunFigures]) -> Json:
    """Return an agent with statistics of its newest runs.

    Args:
        agent: The agent.
        figures: Figures of the runs, newest first.
    """
    prompts = [
        {
            "path": path,
            "name": prompt.label,
            "kind": type(prompt).__name__,
            "template": clipped(template_text(prompt.template)),
        }
        for path, prompt in agent.chain.sent_layers.walk()
    ]
    tools = [
        {"name": spec.name, "description": clipped(spec.description), "parameters": spec.parameters}
        for spec in agent.specs
    ]
    return {
        "name": agent.name,
        "model": agent.chain.model.name,
        "memory": agent.memory is not None,
        "schema": agent.additional_kwargs_schema,
        "tools": tools,
        "prompts": prompts,
        "statistics": statistics_view(figures),
    }


def statistics_view(figures: Sequence[RunFigures]) -> Json:
    """Return the error rate and the percentiles of the duration in seconds, and the runs and the cost of each day.

    The error rate is the share of failed runs in finished and failed runs: a cancelled run is not an error. A
    percentile is the duration of a run (nearest rank), not an interpolation. Days are in UTC, newest first.
    """
    ended = [run for run in figures if run.state in ("finished", "failed")]
    failed = sum(run.state == "failed" for run in ended)
    durations = sorted([run.seconds for run in ended])
    rate = None
    percentiles: list[tuple[int, float]] = []
    if ended:
        rate = failed / len(ended)
        percentiles = [(share, durations[ceil(len(durations) * share / 100) - 1]) for share in _PERCENTILES]
    days: dict[str, Json] = {}
    for run in figures:
        # 0 is an unknown time.
        if not run.created_at:
            continue
        day = datetime.fromtimestamp(run.created_at, UTC).date().isoformat()
        row = days.setdefault(day, {"day": day, "runs": 0, "failed": 0, "tokens": 0, "cost": 0.0})
        row["runs"] += 1
        row["failed"] += run.state == "failed"
        row["tokens"] += run.tokens
        row["cost"] += run.cost
    newest = sorted(days.values(), key=lambda row: row["day"], reverse=True)[:_MAX_DAYS]
    return {"runs": len(figures), "ended": len(ended), "error_rate": rate, "percentiles": percentiles, "days": newest}
