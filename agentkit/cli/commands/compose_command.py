"""`agentkit compose`: what would be sent, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentkit.agent.agent import Agent
from agentkit.agent_files.loaded_agent import LoadedAgent
from agentkit.cli.agent_option import AgentSource, ModelName, opened_agent, scope_of, store_of
from agentkit.cli.commands.run_command import kwargs_of
from agentkit.cli.options import (
    HOME,
    ChatTemplateName,
    EmbedderName,
    Home,
    Kwargs,
    SessionName,
    TemplateModel,
    UserName,
    has_memory,
    own_session,
    utf8,
)
from agentkit.cli.screen import layer_table, layers_form, note, put_exactly, put_json
from agentkit.models.completion.completion_model import CompletionModel
from agentkit.models.http.endpoint import EndpointModel
from agentkit.models.model import Model
from agentkit.models.offline.offline_model import OfflineModel
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.prompt_context import UserInput

__all__ = ["compose"]


def compose(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What you would ask.")],
    agent: AgentSource = None,
    budget: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Tokens that may be sent; layers give way to fit.")
    ] = None,
    kwarg: Kwargs = None,
    as_json: Annotated[bool, typer.Option("--json", help="The table and the request body, as JSON.")] = False,
    as_text: Annotated[
        bool, typer.Option("--text", help="What would be sent, as text: as a chat template writes it, if there is one.")
    ] = False,
    model: ModelName = None,
    chat_template: ChatTemplateName = None,
    model_name: TemplateModel = None,
    session: SessionName = None,
    user: UserName = None,
    embedder: EmbedderName = None,
    home: Home = HOME,
) -> None:
    """Show what would be sent for TEXT, layer by layer. Nothing is sent.

    It is what the agent's model would get, or that of --model. With --chat-template it is what a local model would get,
    also with an agent that has another model.

    Example: agentkit compose "What does Emma cost?" --agent shop.yaml
    """
    if as_json and as_text:
        raise typer.BadParameter("choose one of --json and --text")
    template = chat_template or model_name
    asked = UserInput(utf8(text), additional_kwargs=kwargs_of(kwarg))
    # A template is for the model of the command line, or, without one, in place of the model of the agent.
    is_rewritten = agent is not None and model is None
    of_model = template
    if is_rewritten:
        of_model = None
    with opened_agent(agent, home=home, model=model, embedder=embedder, makes=False, chat_template=of_model) as loaded:
        asks = loaded.agent
        if is_rewritten and template:
            asks = asks.with_changes(model=CompletionModel(asks.chain.model.name, template))
        if budget is not None:
            asks = asks.with_changes(budget=budget)
        composition = _composed(asks, asked, loaded, home, session=session, user=user)
    writer = asks.chain.model
    if isinstance(writer, OfflineModel):
        writer = writer.writer or writer
    if as_json:
        _put_request(composition, writer)
        return
    text = composition.text
    # The table needs no text. It is written all the same, because a template that cannot write it is an error.
    if isinstance(writer, CompletionModel):
        text = writer.request_body(composition)["prompt"]
        _note_template(writer)
    if as_text:
        put_exactly(text)
    else:
        layer_table(composition)


def _composed(
    agent: Agent, asked: UserInput, loaded: LoadedAgent, home: Path, *, session: str | None, user: str | None
) -> Composition:
    # A session of a memory that does not exist is empty: showing a prompt creates nothing.
    if session is not None and (loaded.memory is not None or has_memory(home)):
        with store_of(loaded, home, user=user) as memory:
            return agent.compose(asked, session=own_session(memory, utf8(session)))
    if user is not None:
        return agent.compose(asked, scope=scope_of(loaded.memory, user=user))
    return agent.compose(asked)


def _put_request(composition: Composition, writer: Model) -> None:
    """Print the layers and the body of the request as JSON."""
    body = composition.to_openai()
    if isinstance(writer, EndpointModel):
        body = writer.request_body(composition)
    put_json({**layers_form(composition), "request": body})


def _note_template(model: CompletionModel) -> None:
    """Say which chat template was taken, what ends a reply, and how calls are read."""
    template = model.chat_template
    name = getattr(template, "file", None) or getattr(template, "title", type(template).__name__)
    stop = ", ".join(map(repr, model.stop_words)) or "none"
    calls = getattr(template, "tool_call_format", None) or "any known format"
    note(f"chat template {name}; stop words: {stop}; tool calls: {calls}")
