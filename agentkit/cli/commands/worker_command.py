"""`agentkit worker`: does the durable runs of the agents in a module, until it is stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from agentkit.agent_files.import_path import module_of
from agentkit.agent_files.shared_memories import SharedMemories
from agentkit.cli.agent_option import loaded_agent
from agentkit.cli.options import AsJson, utf8
from agentkit.cli.screen import complain, logged, note, put
from agentkit.durable.durable_errors import WorkerError
from agentkit.durable.runs_facade import Runs

__all__ = ["runs_of", "worker"]


def worker(
    module: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE]", help="Module or file with `runs = Runs(...)`; MODULE:NAME names one."),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option("--agent", "-a", metavar="FILE|MODULE:NAME", help="An agent whose runs are done. Repeatable."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(envvar="AGENTKIT_RUNS_URL", metavar="URL", help="The database of the runs of --agent."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Runs at once, of each agent.")] = 20,
    tenant_concurrency: Annotated[
        int | None, typer.Option(min=1, help="Runs of one tenant at once, on all workers.")
    ] = None,
    lease: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="After how long others go on with its runs if it dies.")
    ] = 15.0,
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long runs have to end when it is stopped.")
    ] = 30.0,
    poll: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="Between two looks into a queue.")] = 0.2,
    as_json: AsJson = False,
) -> None:
    """Do the durable runs of the agents in MODULE, or of --agent, and those of workers that died.

    Stopped with SIGTERM or Ctrl-C it takes no more runs, waits for those under way, and hands over what does not end in
    time. The exit code is 1 when the others took it for dead: start it anew.

    Example: agentkit worker --agent shop.yaml --url postgresql://localhost/runs
    """
    if (module is None) == (not agent):
        raise typer.BadParameter("give a MODULE, or --agent with --url")
    if agent and url is None:
        raise typer.BadParameter("--agent needs --url: the database that its runs are in")
    closing = ExitStack()
    closing.enter_context(logged())
    runs = runs_of(module) if module is not None else _runs_of_agents(agent or [], url or "", closing)
    done = runs.worker(
        concurrency=concurrency, tenant_concurrency=tenant_concurrency, lease=lease, grace=grace, poll=poll
    )
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    for name in ("SIGTERM", "SIGINT"):
        signal.signal(getattr(signal, name), stop)
    done.start()
    agents = ", ".join(f"{name} {version}" for name, version in [one.key for one in runs.agents.all])
    if as_json:
        put(json.dumps({"worker": done.id, "agents": [list(one.key) for one in runs.agents.all]}))
    else:
        note(f"worker {done.id}: {agents}; stop it with Ctrl-C")
    # Only a loss of the lease is polled; a signal sets the event at once.
    while not stopped.wait(0.2) and not done.is_lost:
        pass
    done.stop()
    closing.close()
    if done.is_lost:
        complain(f"worker {done.id}: its lease ended, and others go on with its runs: start it anew")
        sys.stderr.flush()
        # A tool that hangs in a thread must not act after others took over its run.
        os._exit(1)


def _runs_of_agents(sources: list[str], url: str, closing: ExitStack) -> Runs:
    runs = Runs(utf8(url))
    memories = SharedMemories()
    closing.callback(memories.close)
    for source in sources:
        loaded = loaded_agent(source, memories=memories)
        closing.callback(loaded.close)
        runs.add(loaded.agent)
    return runs


def runs_of(module: str) -> Runs:
    """Return the runs that a module, or a file, has under a name; the only ones it has if there is no name.

    Raises:
        AgentDefinitionError: There is no such module, or it failed when it was imported.
        WorkerError: No `Runs` was found, or several.
    """
    path, _, name = module.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    found = vars(module_of(path, Path()))
    if name:
        if isinstance(found.get(name), Runs):
            runs: Runs = found[name]
            return runs
        raise WorkerError(f"{path} has no Runs named {name!r}", path=str(path), name=name)
    names = [key for key, value in found.items() if isinstance(value, Runs)]
    if len({id(found[key]) for key in names}) == 1:
        only: Runs = found[names[0]]
        return only
    what = "has no Runs"
    if names:
        what = f"has several: name one of {', '.join(f'{path}:{key}' for key in names)}"
    raise WorkerError(
        f"{path} {what}; expected `runs = Runs('sqlite:///runs.db')`, and its agents added to it", path=str(path)
    )
