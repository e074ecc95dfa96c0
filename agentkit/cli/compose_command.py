"""`agentkit compose`: what would be sent, layer by layer."""

from __future__ import annotations

from typing import Annotated

import typer

from agentkit.cli.agent_option import AgentSource, ModelName, opened_agent, scope_of, store_of
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
from agentkit.cli.run_command import kwargs_of
from agentkit.cli.screen import layer_table, layers_form, note, put_exactly, put_json
from agentkit.models.completion.completion_model import CompletionModel
from agentkit.models.http.endpoint import EndpointModel
from agentkit.models.offline.offline_model import OfflineModel
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
    is_rewritten = agent is not None and model is None  # whatever model the agent has
    of_model = None if is_rewritten else template
    with opened_agent(agent, home=home, model=model, embedder=embedder, makes=False, chat_template=of_model) as loaded:
        asks = loaded.agent
        if is_rewritten and template:
            asks = asks.but(model=CompletionModel(asks.chain.model.name, template))
        if budget is not None:
            asks = asks.but(budget=budget)
        if session is None or (loaded.memory is None and not has_memory(home)):
            composition = asks.compose(asked, scope=None if user is None else scope_of(loaded.memory, user=user))
        else:
            with store_of(loaded, home, user=user) as memory:
                composition = asks.compose(asked, session=own_session(memory, utf8(session)))
    writer = asks.chain.model
    if isinstance(writer, OfflineModel):
        writer = writer.writer or writer
    if as_json:
        body = writer.request_body(composition) if isinstance(writer, EndpointModel) else composition.to_openai()
        put_json({**layers_form(composition), "request": body})
        return
    written = None
    if isinstance(writer, CompletionModel):  # also for the table: a template that cannot write it is an error
        written = writer.request_body(composition)["prompt"]
        _note_template(writer)
    if as_text:
        put_exactly(composition.text if written is None else written)
    else:
        layer_table(composition)


def _note_template(model: CompletionModel) -> None:
    """Say which chat template was taken, what ends a reply, and how calls are read."""
    template = model.chat_template
    name = getattr(template, "file", None) or getattr(template, "title", type(template).__name__)
    stop = ", ".join(map(repr, model.stop_words)) or "none"
    calls = getattr(template, "tool_call_format", None) or "any known format"
    note(f"chat template {name}; stop words: {stop}; tool calls: {calls}")
