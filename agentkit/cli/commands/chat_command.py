"""`agentkit chat`: options of the command, which runs a `Chat`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from agentkit.cli.agent_option import AgentSource, ModelName, conversation_memory, earlier_sessions, opened_agent
from agentkit.cli.commands.run_command import kwargs_of
from agentkit.cli.options import (
    HOME,
    ChatTemplateName,
    EmbedderName,
    Home,
    Kwargs,
    LocaleName,
    SessionName,
    SharedNames,
    TemplateModel,
    TenantName,
    UserName,
    utf8,
)
from agentkit.cli.screen import note

if TYPE_CHECKING:
    from agentkit_prompts.context.items import ToolSpec


def chat(
    agent: AgentSource = None,
    session: SessionName = None,
    tenant: TenantName = None,
    user: UserName = None,
    model: ModelName = None,
    once: Annotated[str | None, typer.Option(metavar="TEXT", help="Answer TEXT and exit.")] = None,
    kwarg: Kwargs = None,
    shared: SharedNames = None,
    locale: LocaleName = None,
    chat_template: ChatTemplateName = None,
    model_name: TemplateModel = None,
    embedder: EmbedderName = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print a line of JSON for each input line: a whole answer, or the result of a command."
        ),
    ] = False,
    home: Home = HOME,
) -> None:
    """Chat with an agent; without --agent, with the default agent and the ingested documents.

    Each line of the terminal or the pipe is a turn. /layers shows the last prompt, /why PLACE shows the source of a
    part of it, /undo removes the last turn, /fork NAME continues in a copy, /cost shows tokens and money, /quit exits.
    A line that is typed while an answer is written is sent to the run, which reads it before its next step.
    A tool call that needs approval asks at a terminal, and is denied without a terminal. Answers go to stdout,
    everything else to stderr.

    Example: agentkit chat --agent shop.yaml --session monday
    """
    from agentkit.cli.commands.terminal_chat import Chat
    from agentkit.models.abilities import model_path
    from agentkit.models.offline.offline_model import OfflineModel

    with (
        opened_agent(
            agent,
            home=home,
            model=model,
            embedder=embedder,
            verbose=True,
            chat_template=chat_template,
            model_name=model_name,
            shared=shared,
            tenant=tenant,
        ) as loaded,
        conversation_memory(loaded, home, tenant, user) as memory,
    ):
        name = session or f"{datetime.now().astimezone():%Y-%m-%d-%H%M%S}-{os.getpid()}"
        tag = locale and utf8(locale)
        terminal_chat = Chat(loaded.agent, memory, utf8(name), kwargs_of(kwarg), locale=tag, as_json=as_json)
        before = len(terminal_chat.session.conversation)
        if session and not before and earlier_sessions(loaded, tenant, user, name=utf8(name)):
            note(f"{name} is from before {loaded.name} had a memory and stays apart: this conversation is a new one")
        if isinstance(model_path(loaded.agent.chain.model)[-1], OfflineModel) and loaded.agent.specs:
            note(f"try: {_call_of(loaded.agent.specs[0])}")
        text = f"session {terminal_chat.session.id}"
        if before:
            text += f", {before} messages so far"
        note(text)
        if once is None:
            terminal_chat.talk()
        else:
            terminal_chat.ask(utf8(once))


def _call_of(tool: ToolSpec) -> str:
    """Return a text that makes the offline model call a tool."""
    properties = tool.parameters.get("properties", {})
    arguments = []
    for name in tool.parameters.get("required", ()):
        schema = properties.get(name)
        is_text = isinstance(schema, Mapping) and schema.get("type") == "string"
        arguments.append(f'{name}="..."' if is_text else f"{name}=...")
    if not arguments:
        return f"Use {tool.name}."
    return f"Use {tool.name} with {' and '.join(arguments)}."
