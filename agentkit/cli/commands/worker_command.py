"""`agentkit worker`: executes durable runs until it is stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from agentkit.cli.agent_option import AgentSources, loaded_agent
from agentkit.cli.options import AsJson, utf8
from agentkit.cli.screen import complain, logged, note, put

if TYPE_CHECKING:
    from agentkit.durable.runs_facade import Runs
    from agentkit.durable.worker import Worker


def worker(
    context: typer.Context,
    module: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE]", help="Module or file with `runs = Runs(...)`; or MODULE:NAME."),
    ] = None,
    agent: AgentSources = None,
    url: Annotated[
        str | None,
        typer.Option(envvar="AGENTKIT_RUNS_URL", metavar="URL", help="Database of the runs of --agent."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Maximum concurrent runs per agent.")] = 20,
    tenant_concurrency: Annotated[
        int | None, typer.Option(min=1, help="Maximum concurrent runs of a tenant on all workers.")
    ] = None,
    lease: Annotated[
        float,
        typer.Option(
            min=1, metavar="SECONDS", help="Seconds after which other workers take the runs of a dead worker."
        ),
    ] = 15.0,
    grace: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Seconds to finish runs on shutdown.")] = 30.0,
    poll: Annotated[
        float, typer.Option(min=0.001, metavar="SECONDS", help="Seconds between two reads of a queue.")
    ] = 0.2,
    as_json: AsJson = False,
) -> None:
    """Execute durable runs of the agents in MODULE or of --agent, and runs of dead workers.

    After SIGTERM or Ctrl-C the worker takes no more runs, waits for its runs, and releases unfinished runs. The exit
    code is 1 if it lost its lease to other workers: restart it.

    Example: agentkit worker --agent shop.yaml --url postgresql://localhost/runs
    """
    source = context.get_parameter_source("agent")
    if module is not None and source is not None and source.name == "ENVIRONMENT":
        agent = None  # MODULE replaces the agents of the variable
    if (module is None) == (not agent):
        raise typer.BadParameter("expected MODULE, or --agent with --url")
    if agent and url is None:
        raise typer.BadParameter("--agent requires --url, the database of its runs")
    closing = ExitStack()
    closing.enter_context(logged())
    runs = runs_of(module) if module is not None else _runs_of_agents(agent or [], url or "", closing)
    executor = runs.worker(
        concurrency=concurrency, tenant_concurrency=tenant_concurrency, lease=lease, grace=grace, poll=poll
    )
    _execute(executor, [added.key for added in runs.agents.all], as_json)
    closing.close()
    if executor.is_lost:
        complain(f"worker {executor.id}: it lost its lease, and other workers continue its runs: restart it")
        sys.stderr.flush()
        # The exit ends all threads: a tool in a thread must not act after another worker took over the run.
        os._exit(1)


def _execute(executor: Worker, keys: list[tuple[str, str]], as_json: bool) -> None:
    """Execute runs until a signal arrives or the worker loses its lease.

    Args:
        executor: The worker.
        keys: Names and versions of its agents, to print.
        as_json: True to print the id and the agents of the worker as JSON.
    """
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    for name in ("SIGTERM", "SIGINT"):
        signal.signal(getattr(signal, name), stop)
    executor.start()
    if as_json:
        put(json.dumps({"worker": executor.id, "agents": [list(key) for key in keys]}))
    else:
        agents = ", ".join(f"{name} {version}" for name, version in keys)
        note(f"worker {executor.id}: {agents}; stop it with Ctrl-C")
    # The timeout is only for the lease: a signal sets the event at once.
    while not stopped.wait(0.2) and not executor.is_lost:
        pass
    executor.stop()


def _runs_of_agents(sources: list[str], url: str, closing: ExitStack) -> Runs:
    from agentkit.agent.tenant_agent import BoundAgents, TenantAgent
    from agentkit.agent_files.shared_memories import SharedMemories
    from agentkit.durable.runs_facade import Runs

    runs = Runs(utf8(url))
    memories = SharedMemories()
    closing.callback(memories.close)
    bound = BoundAgents()
    for source in sources:
        loaded = loaded_agent(source, memories=memories)
        closing.callback(loaded.close)
        runs.add(TenantAgent(loaded.name, partial(getattr, loaded, "agent"), bound))
    return runs


def runs_of(module: str) -> Runs:
    """Return the `Runs` of MODULE:NAME, or the only `Runs` of a module or file.

    Raises:
        AgentDefinitionError: The module is unknown, or its import failed.
        WorkerError: The name is unknown, or the module has no `Runs` or several.
    """
    from agentkit.agent_files.import_path import module_of
    from agentkit.durable.durable_errors import WorkerError
    from agentkit.durable.runs_facade import Runs

    path, _, name = module.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    values = {key: value for key, value in vars(module_of(path, Path())).items() if isinstance(value, Runs)}
    if name:
        if name in values:
            return values[name]
        raise WorkerError(f"{path} has no Runs named {name!r}", path=str(path), name=name)
    # Several names may refer to the same object.
    if len({id(runs) for runs in values.values()}) == 1:
        return next(iter(values.values()))
    problem = "has no Runs"
    if values:
        problem = f"has several Runs: name one of {', '.join(f'{path}:{key}' for key in values)}"
    raise WorkerError(
        f"{path} {problem}; expected `runs = Runs('sqlite:///runs.db')` with added agents", path=str(path)
    )
