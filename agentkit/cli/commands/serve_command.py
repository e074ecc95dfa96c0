"""`agentkit serve`: agents over HTTP."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.agent_files.shared_memories import SharedMemories
from agentkit.cli.agent_option import AgentSources, ModelName, loaded_agent, opened_agent
from agentkit.cli.options import HOME, AsJson, EmbedderName, Home, open_memory, utf8
from agentkit.cli.screen import complain, logged, note, put
from agentkit.durable.runs_facade import Runs

__all__ = ["ACCESS", "serve"]

ACCESS = "access.yaml"
"""Name of the access file in the folder of the store."""


_RELOADED = "reloaded"
"""Version of agents whose files are looked at: their runs go on with them as they are then."""


def serve(
    agent: AgentSources = None,
    host: Annotated[str, typer.Option(help="Where to listen; other than this machine only with tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 takes a free port.")] = 8000,
    access: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Tenants and tokens; see `agentkit token`.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="A web page that may ask. Repeatable.")
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(
            envvar="AGENTKIT_RUNS_URL",
            metavar="URL",
            help="Database of the runs, sqlite:///... or postgresql://..., where any worker goes on with them.",
        ),
    ] = None,
    grace: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="What goes on when it stops has.")] = 20.0,
    reload: Annotated[
        bool, typer.Option("--reload", help="Take agent files that are changed, for what begins from then on.")
    ] = False,
    model: ModelName = None,
    embedder: EmbedderName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Serve agents over HTTP: OpenAI-compatible endpoints, sessions, runs and the inspector.

    Without an access file only this machine is served. Ctrl-C or SIGTERM stops it; runs that have not ended are gone on
    with when it starts again, and with --runs by any other server or worker on that database.

    Example: agentkit serve --agent shop.yaml --port 8000
    """
    try:
        from agentkit.runs.run_store import RunStore
        from agentkit.server.access import Access
        from agentkit.server.agent_reload import AgentReload
        from agentkit.server.http_app import Server
        from agentkit.server.server_options import ServerOptions
        from agentkit.server.serving import uvicorn_server
    except ModuleNotFoundError as error:
        complain(f"{error.name} is missing: install the extra `server`")
        raise typer.Exit(1) from error
    with ExitStack() as closing:
        closing.enter_context(logged())
        loaded: list[LoadedAgent] = []
        memories = SharedMemories()
        closing.callback(memories.close)
        load = partial(loaded_agent, home=home, model=model, memories=memories)
        for source in agent or ():
            loaded.append(load(source))
            if not reload:
                closing.callback(loaded[-1].close)
        if not loaded:
            loaded.append(
                closing.enter_context(opened_agent(None, home=home, model=model, embedder=embedder, tells=True))
            )
        memory = None
        if not any(one.memory for one in loaded):
            memory = closing.enter_context(open_memory(home, embedder=embedder))
        store = durable = None
        if runs is None:
            store = RunStore(home / "runs.db")
            closing.callback(store.close)
        else:
            durable = Runs(utf8(runs))
            closing.callback(durable.close)
        known = access or (home / ACCESS if (home / ACCESS).exists() else None)
        options = ServerOptions(cors_origins=tuple(cors or ()), grace_seconds=grace)
        made = Server(
            loaded,
            memory=memory,
            store=store,
            access=None if known is None else Access(known),
            options=options,
            runs=durable,
            version=_RELOADED if reload else None,
        )
        if reload:
            reloading = AgentReload(made, load, _report)
            closing.callback(reloading.close)
            for one in loaded:
                if one.name not in reloading.watched:
                    note(f"{one.name} is an agent of a module: it is not reloaded")
        running = uvicorn_server(made, host=host, port=port)

        def ready() -> None:
            address = f"http://{host}:{running.port}"
            inspector = f"{address}/inspector/"
            if as_json:
                put(json.dumps({"url": address, "inspector": inspector, "agents": [one.name for one in loaded]}))
            else:
                put(address)
                note(f"inspector: {inspector}")
                note(f"agents: {', '.join([one.name for one in loaded])}; Ctrl-C ends it")
                if known is None:
                    note("no token is asked for: only this machine is served")

        running.on_ready = ready
        running.run()
        if not running.started:
            raise typer.Exit(1)


def _report(name: str, problem: str | None) -> None:
    if problem is None:
        note(f"{name}: its file was loaded again")
    else:
        complain(f"{name}: its file was changed and cannot be used; the agent before it stays\n{problem}")
