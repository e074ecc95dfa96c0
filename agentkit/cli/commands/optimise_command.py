"""`agentkit optimise`: searches better texts for parts of an agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkit.cli.agent_option import AgentSource, ModelName, loaded_agent
from agentkit.cli.options import AsJson, utf8
from agentkit.cli.screen import complain, note, put, put_json

if TYPE_CHECKING:
    from agentkit.improve import Optimisation


def optimise(
    agent: AgentSource = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", "-r", metavar="FILE", help="Rows; see `agentkit eval --agent`.")
    ] = None,
    score: Annotated[
        list[str] | None, typer.Option("--score", "-s", metavar="NAME", help="Score; see `agentkit eval`. Repeatable.")
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option("--part", "-p", metavar="NAME", help="Part that can change, such as system.persona. Repeatable."),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option("--held-out", metavar="FILE", help="Rows of the comparison. Default: 30 % of the rows of --rows."),
    ] = None,
    model: ModelName = None,
    reflect: Annotated[
        str | None,
        typer.Option("--reflect", metavar="NAME", help="Model that proposes texts. Default: the model of the agent."),
    ] = None,
    proposals: Annotated[int, typer.Option("--proposals", help="Maximum number of proposed texts.")] = 20,
    model_calls: Annotated[int | None, typer.Option("--model-calls", help="Maximum number of model calls.")] = None,
    money: Annotated[float | None, typer.Option("--money", metavar="USD", help="Maximum US dollars.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", help="Maximum number of concurrent runs.")] = 8,
    names: Annotated[bool, typer.Option("--list", help="Print the parts of the agent, and exit.")] = False,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Write the texts into their files if the scores of held-out rows are better."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search better texts for parts of an agent, compare them on held-out rows, and print a diff.

    A prompt keeps its placeholders and kwargs. Without --apply nothing is written.

    Example: agentkit optimise --agent shop.yaml --rows cases.yaml --score contains --part system.persona
    """
    from agentkit.cli.agent_evaluation import scores_named
    from agentkit.cli.default_agent import full_name
    from agentkit.improve import OptimiseBudget, optimise_sync, part_texts

    if agent is None:
        raise typer.BadParameter("--agent is required: an agent file, or module:agent")
    loaded = loaded_agent(agent, model=model)
    try:
        if names:
            _put_parts(part_texts(loaded), as_json=as_json)
            return
        if rows is None or not score or not part:
            raise typer.BadParameter(
                "--rows FILE, at least one --score and at least one --part are required, or --list"
            )
        result = optimise_sync(
            loaded,
            rows,
            scores_named(score),
            parts=[utf8(each) for each in part],
            held_out=0.3 if held_out is None else held_out,
            model=None if reflect is None else full_name(utf8(reflect)),
            budget=OptimiseBudget(proposals, model_calls, money),
            concurrency=concurrency,
        )
        _put_result(result, as_json=as_json)
        if apply:
            if not result.is_better:
                complain("nothing is written: the scores of the held-out rows are not better")
                raise typer.Exit(1)
            for path in result.apply():
                note(f"written: {path}")
    finally:
        loaded.close()


def _put_parts(texts: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        put_json(texts)
        return
    for name, text in texts.items():
        put(f"{name}: {' '.join(text.split()):.100}")


def _put_result(result: Optimisation, *, as_json: bool) -> None:
    if as_json:
        scores = {
            each.name: {
                "before": each.before,
                "after": each.after,
                "low": each.interval.low,
                "high": each.interval.high,
            }
            for each in result.differences
        }
        put_json(
            {
                "changed": {name: result.texts[name] for name in result.changed},
                "scores": scores,
                "failed": {"before": len(result.before.failures), "after": len(result.after.failures)},
                "proposals": result.proposals,
                "refused": [list(each) for each in result.refused],
                "diff": result.diff,
            }
        )
        return
    put(str(result))
    if result.diff:
        put(result.diff.rstrip())
