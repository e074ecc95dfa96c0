"""`agentkit mcp`: serves agents as tools of an MCP server, and logs in to MCP servers."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from agentkit.cli.agent_option import AgentSources, ModelName, loaded_agent, opened_agent
from agentkit.cli.options import HOME, AsJson, EmbedderName, Home
from agentkit.cli.screen import fail, note, put

if TYPE_CHECKING:
    from agentkit.agent_files.loaded_agent import LoadedAgent

mcp_app = typer.Typer()

ServerAddress: TypeAlias = Annotated[str, typer.Argument(metavar="URL", help="Address of the MCP server.")]


@mcp_app.callback(invoke_without_command=True)
def mcp(
    ctx: typer.Context,
    agent: AgentSources = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Serve http://127.0.0.1:PORT/mcp; stdin and stdout by default."),
    ] = None,
    model: ModelName = None,
    embedder: EmbedderName = None,
    home: Home = HOME,
) -> None:
    """Serve agents as tools of an MCP server: each call is a run that reports its progress.

    The arguments of a tool are `input` and the additional kwargs of the agent's prompts. Tool calls of the agent that
    need approval are denied. The server stops when the client disconnects, or with Ctrl-C.

    Example: agentkit mcp --agent shop.yaml
    """
    if ctx.invoked_subcommand is not None:
        return
    from agentkit.agent_files.shared_memories import SharedMemories
    from agentkit_tools.mcp.serve import serve_mcp

    with ExitStack() as closing:
        loaded: list[LoadedAgent] = []
        memories = SharedMemories()
        closing.callback(memories.close)
        for source in agent or ():
            loaded.append(loaded_agent(source, home=home, model=model, memories=memories))
            closing.callback(loaded[-1].close)
        if not loaded:
            loaded.append(closing.enter_context(opened_agent(None, home=home, model=model, embedder=embedder)))
        tools = [each.agent.as_tool(name=each.name, description=each.description or _about(each)) for each in loaded]
        names = [tool.name for tool in tools]
        _check_unique(names)
        name = "agentkit"
        if len(names) == 1:
            name = names[0]
        if port is None:
            serve_mcp(tools, name=name)
        else:
            note(f"http://127.0.0.1:{port}/mcp serves {', '.join(names)}; Ctrl-C stops it")
            serve_mcp(tools, name=name, port=port)


@mcp_app.command()
def login(
    url: ServerAddress,
    client_id: Annotated[
        str, typer.Option(envvar="MCP_CLIENT_ID", metavar="ID", help="Client id, if the server registers no clients.")
    ] = "",
    client_secret: Annotated[
        str, typer.Option(envvar="MCP_CLIENT_SECRET", metavar="SECRET", help="Secret of the client id.")
    ] = "",
    scope: Annotated[str, typer.Option(metavar="NAMES", help="Rights to request, separated by spaces.")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to which the browser returns; 0 for any.")] = 0,
    timeout: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Maximum time of the login.")] = 300.0,
    browser: Annotated[bool, typer.Option(help="Open the page of the login; otherwise only print its address.")] = True,
    as_json: AsJson = False,
) -> None:
    """Log in to an MCP server with OAuth, and store its tokens in a private file.

    Example: agentkit mcp login https://mcp.example.com/mcp
    """
    from agentkit_prompts.credentials import BareAddress
    from agentkit_tools.errors import MCPLoginError
    from agentkit_tools.mcp.login import mcp_login

    def show(page: str) -> None:
        note(f"Log in at {page}")
        if browser:
            typer.launch(page)

    logging_in = mcp_login(
        url, show, client_id=client_id, client_secret=client_secret, scope=scope, port=port, timeout=timeout
    )
    try:
        has_logged_in = asyncio.run(logging_in)
    except KeyboardInterrupt:
        raise MCPLoginError.of(BareAddress.of(url).url, "cancelled") from None
    address = BareAddress.of(url).url
    if as_json:
        put(json.dumps({"server": address, "logged_in": has_logged_in}))
    elif has_logged_in:
        put(f"logged in to {address}")
    else:
        put(f"{address} requires no login; nothing was stored")


@mcp_app.command()
def logout(url: ServerAddress, as_json: AsJson = False) -> None:
    """Delete the stored tokens of an MCP server. The server is not notified.

    Example: agentkit mcp logout https://mcp.example.com/mcp
    """
    from agentkit_prompts.credentials import BareAddress
    from agentkit_tools.mcp.token_file import TokenFile

    address = BareAddress.of(url).url
    if not TokenFile(address).remove():
        fail(f"no login to {address} is stored")
    if as_json:
        put(json.dumps({"server": address, "logged_out": True}))
    else:
        put(f"logged out of {address}")


def _check_unique(names: list[str]) -> None:
    """Exit with an error if several agents have the same name."""
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        fail(f"several agents have the name {', '.join(duplicates)}: give each agent a unique name")


def _about(loaded: LoadedAgent) -> str:
    text = f"Runs the agent {loaded.name}."
    if loaded.agent.tools:
        text += f" Its tools: {', '.join(loaded.agent.tools)}."
    return text
