"""`agentkit mcp`: serves agents as tools of an MCP server."""

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
