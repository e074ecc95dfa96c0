"""`agentkit schema`: shows the additional kwargs of an agent, or the JSON Schema of agent files."""

from __future__ import annotations

from typing import Annotated

import typer

from agentkit.cli.agent_option import AgentSource, opened_agent
from agentkit.cli.options import HOME, AsJson, Home
from agentkit.cli.screen import note, put, put_json


def schema(
    agent: AgentSource = None,
    of_file: Annotated[
        bool, typer.Option("--agent-file", help="Print the JSON Schema of agent files, for editors.")
    ] = False,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Show the additional kwargs of an agent and the prompts that require them.

    Example: agentkit schema --agent shop.yaml --json
    """
    from agentkit.agent_files.agent_file import agent_file_schema

    if of_file:
        put_json(agent_file_schema())
        return
    with opened_agent(agent, home=home, create_memory=False) as loaded:
        kwargs_schema = loaded.agent.additional_kwargs_schema or {"type": "object", "properties": {}}
    if as_json:
        put_json(dict(kwargs_schema))
        return
    properties = kwargs_schema.get("properties", {})
    for name, kwarg in properties.items():
        kind = kwarg.get("type", "any")
        need = "optional"
        if name in kwargs_schema.get("required", ()):
            need = "required"
        text = f"{name}: {kind}, {need}"
        prompts = kwarg.get("x-required-by")
        if prompts:
            text += f", for {', '.join(prompts)}"
        put(text)
    if not properties:
        note("the prompts of the agent require no additional kwargs")
