"""`agentkit compose`: the prompt of an input, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkit.cli.agent_option import AgentSource, ModelName, conversation_memory, opened_agent, scope_of
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
    has_memory,
    memory_with,
    text_session,
    utf8,
)
from agentkit.cli.screen import layer_table, layers_form, note, put_exactly, put_json

if TYPE_CHECKING:
    from agentkit.agent.agent import Agent
    from agentkit.agent_files.loaded_agent import LoadedAgent
    from agentkit.models.model import Model
    from agentkit_prompts.composition.composition import Composition
    from agentkit_prompts.context.prompt_context import UserInput


def compose(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Input of the agent.")],
    agent: AgentSource = None,
    budget: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum tokens of the prompt; layers are trimmed to fit.")
    ] = None,
    kwarg: Kwargs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table and the request body as JSON.")] = False,
    as_text: Annotated[
        bool,
        typer.Option("--text", help="Print the prompt as text, rendered by the chat template if the model has one."),
    ] = False,
    model: ModelName = None,
    chat_template: ChatTemplateName = None,
    model_name: TemplateModel = None,
    session: SessionName = None,
    tenant: TenantName = None,
    user: UserName = None,
    shared: SharedNames = None,
    locale: LocaleName = None,
    embedder: EmbedderName = None,
    home: Home = HOME,
) -> None:
    """Show the prompt of TEXT, layer by layer, without sending it.

    It is the prompt for the agent's model, or for --model, with the placeholders of a model that redacts. With
    --chat-template it is the prompt for a local model, even if the agent has another model.

    Example: agentkit compose "What does Emma cost?" --agent shop.yaml
    """
    from agentkit.inspector.redacted_layers import sent_composition
    from agentkit.models.abilities import model_path
    from agentkit.models.offline.offline_model import OfflineModel
    from agentkit_prompts.context.prompt_context import UserInput

    if as_json and as_text:
        raise typer.BadParameter("choose one of --json and --text")
    template = chat_template or model_name
    user_input = UserInput(utf8(text), additional_kwargs=kwargs_of(kwarg))
    # A template belongs to the model of --model. Without --model it replaces the model of the agent.
    replaces_model = agent is not None and model is None
    model_template = template
    if replaces_model:
        model_template = None
    with opened_agent(
        agent,
        home=home,
        model=model,
        embedder=embedder,
        create_memory=False,
        chat_template=model_template,
        shared=shared,
        tenant=tenant,
    ) as loaded:
        composer = loaded.agent
        if replaces_model and template:
            composer = composer.with_changes(model=_completion_model(composer.chain.model, template))
        if budget is not None:
            composer = composer.with_changes(budget=budget)
        composition = _composition(
            composer, user_input, loaded, home, session=session, tenant=tenant, user=user, locale=locale
        )
    composition, _ = sent_composition(composer.chain.model, composition)
    writer = model_path(composer.chain.model)[-1]
    if isinstance(writer, OfflineModel):
        writer = writer.writer or writer
    if as_json:
        _put_request(composition, writer)
    else:
        _put_prompt(composition, writer, as_text=as_text)


def _completion_model(model: Model, template: str) -> Model:
    """Return a model that completes text, and redacts if the replaced model does."""
    from agentkit.models.abilities import model_path
    from agentkit.models.completion.completion_model import CompletionModel
    from agentkit.models.redacting.redacting_model import RedactingModel

    writer: Model = CompletionModel(model.name, template)
    for each in model_path(model):
        if isinstance(each, RedactingModel):
            writer = each.with_model(writer)
    return writer


def _put_prompt(composition: Composition, writer: Model, *, as_text: bool) -> None:
    """Print the text or the table of layers of a prompt, with a note about the chat template."""
    from agentkit.cli.default_agent import template_name
    from agentkit.models.completion.completion_model import CompletionModel

    text = composition.text
    # Rendered even for the table, so that a template that cannot render the prompt is an error.
    if isinstance(writer, CompletionModel):
        text = writer.request_body(composition)["prompt"]
        stop = ", ".join(map(repr, writer.stop_words)) or "none"
        calls = getattr(writer.chat_template, "tool_call_format", None) or "any known format"
        note(f"chat template {template_name(writer)}; stop words: {stop}; tool calls: {calls}")
    if as_text:
        put_exactly(text)
    else:
        layer_table(composition)


def _composition(
    agent: Agent,
    user_input: UserInput,
    loaded: LoadedAgent,
    home: Path,
    *,
    session: str | None,
    tenant: str | None,
    user: str | None,
    locale: str | None,
) -> Composition:
    locale = locale and utf8(locale)
    # Without a memory the session would be empty, and opening it would create the memory.
    if session is not None and (loaded.memory is not None or has_memory(home)):
        with conversation_memory(loaded, home, tenant, user) as memory:
            name = utf8(session)
            # Opening an unknown conversation would store it.
            if memory_with(memory, name).sessions(name=name):
                return agent.compose(user_input, session=text_session(memory, name), locale=locale)
    if session is not None:
        note(
            f"unknown conversation {utf8(session)!r}: the prompt has no earlier turns; pass the --agent, --tenant and "
            "--user of the conversation"
        )
    if tenant is not None or user is not None:
        return agent.compose(user_input, scope=scope_of(loaded.memory, tenant, user), locale=locale)
    return agent.compose(user_input, locale=locale)


def _put_request(composition: Composition, writer: Model) -> None:
    """Print the layers and the body of the request as JSON."""
    from agentkit.models.http.endpoint import EndpointModel

    body = composition.to_openai()
    if isinstance(writer, EndpointModel):
        body = writer.request_body(composition)
    put_json({**layers_form(composition), "request": body})
