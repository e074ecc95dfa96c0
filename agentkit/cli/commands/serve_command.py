"""`agentkit serve`: serves agents over HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentkit.cli.agent_option import AgentSources, ModelName, loaded_agent, opened_agent
from agentkit.cli.options import HOME, AsJson, EmbedderName, Home, open_memory, utf8
from agentkit.cli.screen import complain, logged, note, put
from agentkit_prompts.extras import install

if TYPE_CHECKING:
    from agentkit.agent_files.loaded_agent import LoadedAgent
    from agentkit.server.access import Access
    from agentkit.server.variants import Variant
    from agentkit.server.webhooks import Webhook

ACCESS = "access.yaml"
"""Name of the access file in the folder of the store."""
_SECRET = "AGENTKIT_WEBHOOK_SECRET"
_RELOADED = "reloaded"
"""Version of reloaded agents: their durable runs continue with the current agent."""


def serve(
    agent: AgentSources = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE=SHARE",
            help="Another version of a served agent, for a share of the sessions, such as new.yaml=0.2. Repeatable.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; other machines require tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects a free port.")] = 8000,
    access: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of tenants and tokens; HOME/access.yaml, which `agentkit token` writes, if it exists.",
        ),
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Web page that may call the server. Repeatable.")
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(
            envvar="AGENTKIT_RUNS_URL",
            metavar="URL",
            help="Database of durable runs, sqlite:///... or postgresql://..., which any worker continues.",
        ),
    ] = None,
    webhook: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TENANT=]URL",
            help="Address that receives a signed request (AGENTKIT_WEBHOOK_SECRET) when a run has ended or waits.",
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Seconds to finish requests on shutdown.")
    ] = 20.0,
    reload: Annotated[bool, typer.Option("--reload", help="Reload changed agent files for later runs.")] = False,
    model: ModelName = None,
    embedder: EmbedderName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Serve agents over HTTP: OpenAI-compatible endpoints, sessions, runs and the inspector.

    Without an access file, only requests from this machine are accepted. Ctrl-C or SIGTERM stops the server; unfinished
    runs continue at its next start, or with --runs on any other server or worker of the database.

    Example: agentkit serve --agent shop.yaml --port 8000
    """
    from agentkit.agent_files.shared_memories import SharedMemories
    from agentkit.cli.memory_notes import memory_notes

    try:
        from agentkit.server.agent_reload import AgentReload
        from agentkit.server.connection_limits import raise_file_limit
        from agentkit.server.http_app import Server
        from agentkit.server.server_options import ServerOptions
        from agentkit.server.serving import uvicorn_server
    except ModuleNotFoundError as error:
        complain(f"{error.name} is missing: {install('server')}")
        raise typer.Exit(1) from error
    # Only the command changes the limit: a program that uses the library decides about its process.
    raise_file_limit()
    with ExitStack() as closing:
        closing.enter_context(logged())
        loaded: list[LoadedAgent] = []
        memories = SharedMemories()
        closing.callback(memories.close)
        load = partial(loaded_agent, home=home, model=model, memories=memories)
        for source in agent or ():
            loaded.append(load(source))
            # With --reload, AgentReload closes the agents: it can have replaced the agents of the start.
            if not reload:
                closing.callback(loaded[-1].close)
        if not loaded:
            loaded.append(
                closing.enter_context(opened_agent(None, home=home, model=model, embedder=embedder, verbose=True))
            )
        variants = _variants(variant, load, closing)
        memory = None
        if not any(served.memory for served in loaded):
            memory = closing.enter_context(open_memory(home, embedder=embedder))
        tokens = _access(access, home)
        server = Server(
            loaded,
            memory=memory,
            access=tokens,
            options=ServerOptions(cors_origins=tuple(cors or ()), grace_seconds=grace),
            version=_RELOADED if reload else None,
            webhooks=_webhooks(webhook),
            variants=variants,
            **_run_options(runs, home, closing),
        )
        if reload:
            reloading = AgentReload(server, load, _report)
            closing.callback(reloading.close)
            _note_unwatched(loaded, reloading.watched)
        running = uvicorn_server(server, host=host, port=port)

        def print_address() -> None:
            address = f"http://{host}:{running.port}"
            names = [served.name for served in loaded]
            if as_json:
                put(json.dumps({"url": address, "inspector": f"{address}/inspector/", "agents": names}))
            else:
                notes = memory_notes([served.agent.memory for served in server.agents], server.access)
                _print_address(address, names, notes, has_tokens=tokens is not None)

        running.on_ready = print_address
        running.run()
        if not running.started:
            raise typer.Exit(1)


def _variants(options: Sequence[str] | None, load: Callable[[str], LoadedAgent], closing: ExitStack) -> list[Variant]:
    """Return the variants of `--variant`, and close their agents with the server."""
    from agentkit.server.variants import Variant

    variants = [Variant(load(source), share) for source, share in _shares(options or ())]
    for each in variants:
        closing.callback(each.loaded.close)
    return variants


def _shares(options: Sequence[str]) -> list[tuple[str, float]]:
    """Return file and share of each `--variant FILE=SHARE`.

    Raises:
        typer.BadParameter: An option is invalid.
    """
    shares: list[tuple[str, float]] = []
    for option in options:
        source, mark, share = option.rpartition("=")
        try:
            shares.append((source, float(share)))
        except ValueError:
            mark = ""
        if not mark or not source:
            raise typer.BadParameter(f"--variant {option!r:.60}: expected FILE=SHARE, such as new.yaml=0.2")
    return shares


def _access(path: Path | None, home: Path) -> Access | None:
    """Return the tokens of `--access`, or of the access file in the folder of the store; None without a file."""
    from agentkit.server.access import Access

    if path is None and (home / ACCESS).exists():
        path = home / ACCESS
    if path is None:
        return None
    return Access(path)


def _webhooks(addresses: Iterable[str] | None) -> list[Webhook]:
    """Return the webhooks of `--webhook`.

    Raises:
        AgentDefinitionError: The secret is missing, or an address is invalid.
    """
    from agentkit.errors import AgentDefinitionError
    from agentkit.server.webhooks import Webhook

    webhooks: list[Webhook] = []
    for address in addresses or ():
        secret = os.environ.get(_SECRET, "")
        if not secret:
            raise AgentDefinitionError(
                f"--webhook: set {_SECRET} to the secret of the signature, such as from `openssl rand -base64 32`",
                name=_SECRET,
            )
        tenant, mark, url = address.partition("=")
        if not mark or "/" in tenant:
            webhooks.append(Webhook(address, secret))
        else:
            # An empty tenant, such as of a variable that is not set, is an error: it is not all tenants.
            webhooks.append(Webhook(url, secret, tenant))
    return webhooks


def _run_options(url: str | None, home: Path, closing: ExitStack) -> dict[str, Any]:
    """Return the options of `Server` for durable runs, or for runs in the folder of the store."""
    from agentkit.durable.runs_facade import Runs
    from agentkit.runs.run_store import RunStore

    if url is not None:
        runs = Runs(utf8(url))
        closing.callback(runs.close)
        return {"runs": runs}
    store = RunStore(home / "runs.db")
    closing.callback(store.close)
    return {"store": store}


def _note_unwatched(agents: list[LoadedAgent], watched: Collection[str]) -> None:
    for agent in agents:
        if agent.name not in watched:
            note(f"{agent.name} is an agent of a module: it is not reloaded")


def _print_address(address: str, agents: list[str], notes: Iterable[str], *, has_tokens: bool) -> None:
    put(address)
    note(f"inspector: {address}/inspector/")
    note(f"agents: {', '.join(agents)}; Ctrl-C stops the server")
    if not has_tokens:
        note("the server requires no token: only requests from this machine are accepted")
    for text in notes:
        note(text)


def _report(name: str, problem: str | None) -> None:
    if problem is None:
        note(f"{name}: reloaded")
    else:
        complain(f"{name}: the changed file is invalid; the previous agent stays in use\n{problem}")
