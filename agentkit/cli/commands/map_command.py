"""`agentkit runs map`: starts a durable run per line of a file, and writes the answers in the same order."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkit.cli.commands.worker_command import runs_of
from agentkit.cli.existing_runs import result_of
from agentkit.cli.options import AsJson, utf8
from agentkit.cli.screen import complain, note, progress_bar, put

if TYPE_CHECKING:
    from agentkit_prompts.context.prompt_context import UserInput


def map_(
    module: Annotated[
        str, typer.Argument(metavar="MODULE", help="Module or file with `runs = Runs(...)`; or MODULE:NAME.")
    ],
    inputs: Annotated[
        Path,
        typer.Argument(metavar="FILE", help='Lines of JSON: a text, or {"input": "...", "additional_kwargs": {...}}.'),
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="Name of the map, unique in the database.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File of the answers, one per line.")],
    agent: Annotated[
        str | None,
        typer.Option("--agent", "-a", metavar="NAME", help="Name of the agent; required with several agents."),
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Maximum concurrent runs of all workers.")] = None,
    rate: Annotated[float | None, typer.Option(min=0, help="Maximum runs per second of all workers.")] = None,
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Tenant of the runs.")] = "",
    tenant_concurrency: Annotated[int | None, typer.Option(min=1, help="Maximum concurrent runs of a tenant.")] = None,
    priority: Annotated[int, typer.Option(min=1, help="Runs with lower numbers start first.")] = 100,
    work: Annotated[bool, typer.Option(help="Execute runs in this process too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a durable run per line of FILE, and write the answers in the same order.

    The command may be interrupted and repeated: started runs continue, and written lines stay. The exit code is 1 if a
    run failed; its line contains `error`.

    Example: agentkit runs map shop.agents questions.jsonl --name nightly-1 --out answers.jsonl --work
    """
    from agentkit.runs.run_errors import DurableError

    runs = runs_of(module)
    names = sorted({durable_agent.agent.name for durable_agent in runs.agents.all})
    if agent is None and len(names) != 1:
        raise DurableError(
            f"runs map: name an agent with --agent: {module} has {', '.join(names) or 'none'}", name="agent"
        )
    run_inputs = _inputs(inputs)
    with progress_bar() as bar, runs.worker() if work else nullcontext():
        task = bar.add_task(utf8(name), total=len(run_inputs))
        mapping = runs.map(
            utf8(agent or names[0]),
            run_inputs,
            name=utf8(name),
            out=out,
            tenant=utf8(tenant),
            priority=priority,
            concurrency=concurrency,
            rate=rate,
            tenant_concurrency=tenant_concurrency,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
        report = result_of(mapping)
    if as_json:
        put(json.dumps({**asdict(report), "path": str(report.path)}))
    else:
        note(f"{report.finished} of {report.total} finished, {report.failed} failed: {report.path}")
    if report.failed:
        complain(f"{report.failed} runs failed")
        raise typer.Exit(1)


def _inputs(path: Path) -> list[Any]:
    """Return the inputs in a file.

    Raises:
        DurableError: Lines are no inputs. The error lists the first such lines.
    """
    from agentkit.durable.mapping import all_results
    from agentkit_prompts.system.regular_files import read_regular

    lines = enumerate(read_regular(path).splitlines(), 1)
    return all_results(str(path), ((f"line {at}", partial(_input, line)) for at, line in lines if line.strip()))


def _input(line: bytes) -> str | UserInput:
    from agentkit_prompts.context.prompt_context import UserInput

    try:
        data = json.loads(line)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if isinstance(data, str):
        return data
    if not isinstance(data, dict) or not isinstance(data.get("input"), str):
        raise TypeError('expected a text, or an object with the text "input"')
    if unknown := sorted(data.keys() - {"input", "additional_kwargs"}):
        raise TypeError(f"{', '.join(map(repr, unknown))[:200]}: would be ignored; expected input, additional_kwargs")
    kwargs = data.get("additional_kwargs", {})
    if not isinstance(kwargs, dict):
        raise TypeError("additional_kwargs: expected an object")
    return UserInput(data["input"], additional_kwargs=kwargs)
