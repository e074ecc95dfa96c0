"""`agentkit chat`: what it takes; `Chat` is what it does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import typer

from agentkit.cli.agent_option import AgentSource, ModelName, apart, opened_agent, store_of
from agentkit.cli.commands.run_command import kwargs_of
from agentkit.cli.commands.terminal_chat import Chat
from agentkit.cli.options import (
    HOME,
    ChatTemplateName,
    EmbedderName,
    Home,
    Kwargs,
    SessionName,
    TemplateModel,
    UserName,
    utf8,
)
from agentkit.cli.screen import note
from agentkit.models.offline.offline_model import OfflineModel
from agentkit_prompts.context.items import ToolSpec

__all__ = ["chat"]


def chat(
    agent: AgentSource = None,
    session: SessionName = None,
    user: UserName = None,
    model: ModelName = None,
    once: Annotated[str | None, typer.Option(metavar="TEXT", help="Answer this, and end.")] = None,
    kwarg: Kwargs = None,
    chat_template: ChatTemplateName = None,
    model_name: TemplateModel = None,
    embedder: EmbedderName = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="A line of JSON for each line: an answer once it is whole, or what a command shows."
        ),
    ] = False,
    home: Home = HOME,
) -> None:
    """Talk with an agent; without --agent with one that recalls what was ingested.

    Reads from the terminal or from a pipe, a turn a line. /layers shows what was sent last, /why PLACE where something
    in it is from, /undo takes the last turn back, /fork NAME goes on in a copy, /cost shows what it took, /quit leaves.
    A tool call that needs a person is asked about at a terminal, and denied elsewhere. Answers go to stdout, everything
    else to stderr.

    Example: agentkit chat --agent shop.yaml --session monday
    """
    with (
        opened_agent(
            agent,
            home=home,
            model=model,
            embedder=embedder,
            tells=True,
            chat_template=chat_template,
            model_name=model_name,
        ) as loaded,
        store_of(loaded, home, user=user) as memory,
    ):
        name = session or f"{datetime.now().astimezone():%Y-%m-%d-%H%M%S}-{os.getpid()}"
        talk = Chat(loaded.agent, memory, utf8(name), kwargs_of(kwarg), as_json=as_json)
        before = len(talk.session.conversation)
        if session and not before and apart(loaded, user=user, name=utf8(name)):
            note(f"{name} is from before {loaded.name} had a memory and stays apart: this conversation is a new one")
        if isinstance(loaded.agent.chain.model, OfflineModel) and loaded.agent.specs:
            note(f"try: {_call_of(loaded.agent.specs[0])}")
        text = f"session {talk.session.id}"
        if before:
            text += f", {before} messages so far"
        note(text)
        if once is None:
            talk.talk()
        else:
            talk.ask(utf8(once))


def _call_of(tool: ToolSpec) -> str:
    """Return a text that makes the offline stand-in call a tool."""
    properties = tool.parameters.get("properties", {})
    arguments = []
    for name in tool.parameters.get("required", ()):
        schema = properties.get(name)
        is_text = isinstance(schema, Mapping) and schema.get("type") == "string"
        arguments.append(f'{name}="..."' if is_text else f"{name}=...")
    if not arguments:
        return f"Use {tool.name}."
    return f"Use {tool.name} with {' and '.join(arguments)}."
