"""`agentkit schema`: what the prompts of an agent require, and what an agent file may say."""

from __future__ import annotations

from typing import Annotated

import typer

from agentkit.agent_files.agent_file import agent_file_schema
from agentkit.cli.agent_option import AgentSource, opened_agent
from agentkit.cli.options import HOME, AsJson, Home
from agentkit.cli.screen import note, put, put_json

__all__ = ["schema"]


def schema(
    agent: AgentSource = None,
    of_file: Annotated[
        bool, typer.Option("--agent-file", help="The JSON Schema of agent files, for your editor.")
    ] = False,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Show which additional kwargs the prompts of an agent require, and which prompts need them.

    Example: agentkit schema --agent shop.yaml --json
    """
    if of_file:
        put_json(agent_file_schema())
        return
    with opened_agent(agent, home=home, makes=False) as loaded:
        found = loaded.agent.additional_kwargs_schema or {"type": "object", "properties": {}}
    if as_json:
        put_json(dict(found))
        return
    properties = found.get("properties", {})
    for name, one in properties.items():
        kind = one.get("type", "any")
        needs = "optional"
        if name in found.get("required", ()):
            needs = "required"
        text = f"{name}: {kind}, {needs}"
        if prompts := one.get("x-required-by"):
            text += f", for {', '.join(prompts)}"
        put(text)
    if not properties:
        note("its prompts require no additional kwargs")
