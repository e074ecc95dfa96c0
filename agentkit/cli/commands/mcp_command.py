"""`agentkit mcp`: agents as tools of an MCP server, for whatever client speaks that protocol."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.agent_files.shared_memories import SharedMemories
from agentkit.cli.agent_option import AgentSources, ModelName, loaded_agent, opened_agent
from agentkit.cli.options import HOME, EmbedderName, Home
from agentkit.cli.screen import fail, note

__all__ = ["mcp"]


def mcp(
    agent: AgentSources = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Serve http://127.0.0.1:PORT/mcp; stdin and stdout if it is left out."),
    ] = None,
    model: ModelName = None,
    embedder: EmbedderName = None,
    home: Home = HOME,
) -> None:
    """Offer agents as tools of an MCP server: each call is a run, and the client hears how far it is.

    A tool takes `input`, and the additional kwargs that the prompts of its agent require. Its own tools that need a
    person are denied, as nobody is there to ask. It ends when the client leaves, or with Ctrl-C.

    Example: agentkit mcp --agent shop.yaml
    """
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
        tools = [one.agent.as_tool(name=one.name, description=one.description or _about(one)) for one in loaded]
        names = [one.name for one in tools]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            fail(f"two agents are called {', '.join(twice)}: give each a unique name")
        name = "agentkit"
        if len(names) == 1:
            name = names[0]
        if port is None:
            serve_mcp(tools, name=name)
        else:
            note(f"http://127.0.0.1:{port}/mcp offers {', '.join(names)}; Ctrl-C ends it")
            serve_mcp(tools, name=name, port=port)


def _about(loaded: LoadedAgent) -> str:
    text = f"Asks the agent {loaded.name}."
    if loaded.agent.tools:
        text += f" It can use {', '.join(loaded.agent.tools)}."
    return text
