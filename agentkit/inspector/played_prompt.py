"""The prompt of a model call with the changes of the page, and the models that Play can ask."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agentkit.agent.agent import Agent
from agentkit.inspector.edits import edited_layers
from agentkit.inspector.page_requests import CompositionRequest, PlaySettings
from agentkit.models.model import Model, Reply
from agentkit.models.settings import ModelSettings, with_settings
from agentkit.run.engine.spending import Spending
from agentkit.run.parts.chain import Chain
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.errors import ContextError, PromptError
from agentkit_prompts.names import nearest
from agentkit_prompts.tokens.budget import Budget

_POINTER = re.compile(r"(conversation|intermediate)\[(\d{1,9})\]")
_MAX_NAME = 80
"""Maximum characters of a name in an error."""


class PlayedPrompt(NamedTuple):
    """A prompt with its changes, and the model that it is for."""

    model: Model
    composition: Composition


def play_models(agents: Iterable[Agent[Any, Any]]) -> dict[str, Model]:
    """Return the models of agents by name, each model of a fallback too.

    A page can ask these models only: an address that a page could choose would receive the prompt and the key.
    """
    models: dict[str, Model] = {}
    for agent in agents:
        model = agent.chain.model
        for each in (model, *getattr(model, "models", ())):
            models.setdefault(each.name, each)
    return models


def played_prompt(
    agent: Agent[Any, Any], ctx: PromptContext, request: CompositionRequest, models: Mapping[str, Model]
) -> PlayedPrompt:
    """Return the prompt of a model call with the requested changes, composed as a run composes it.

    Args:
        agent: The agent of the call.
        ctx: Context of the call.
        request: The changes.
        models: Models that may replace the model of the agent, by name.

    Raises:
        ContextError: Changed prompts or messages do not exist. The error lists all of them.
        PromptError: The model is unknown, or the prompt cannot be rendered.
        AgentDefinitionError: The model does not support a setting.
    """
    chain = agent.chain
    model = _model(chain.model, request, models)
    ctx = changed_context(ctx, request)
    if model is chain.model and not request.layers and request.budget == "keep":
        return PlayedPrompt(model, chain.compose(ctx))
    budget = chain.budget
    if request.budget is None:
        budget = None
    elif request.budget != "keep":
        budget = Budget(request.budget)

    def changed(layers: Any) -> Chain[Any]:
        return Chain(model, layers, output=chain.output, counter=chain.counter, budget=budget, redact=chain.redact)

    # The new model can require another way to request the output type: its prompts are the prompts to change.
    played = changed(chain.layers)
    layers = edited_layers(played.sent_layers, request.layers)
    if layers is not played.sent_layers:
        played = changed(layers)
    return PlayedPrompt(model, played.compose(ctx))


async def asked(agent: Agent[Any, Any], prompt: PlayedPrompt) -> Reply:
    """Send a prompt once, within the seconds of the agent's limits, and return the reply with its cost.

    Raises:
        ModelError: The model returned no reply.
        TimeoutError: The reply took longer than the limit.
        AgentDefinitionError: The agent limits money, and the price of the model is unknown.
    """
    spending = Spending(agent.definition.limits, prompt.model, "", ())
    async with asyncio.timeout(agent.definition.limits.seconds):
        reply = await prompt.model.request(prompt.composition)
    if spending.price is None:
        return reply
    return spending.priced(reply, prompt.composition, spending.price)


def _model(model: Model, request: CompositionRequest, models: Mapping[str, Model]) -> Model:
    name = request.model
    if name is not None and name != model.name:
        if name not in models:
            raise PromptError(
                f"model: unknown model {name[:_MAX_NAME]!r}{nearest(name[:_MAX_NAME], models)}; the page can ask the "
                "models of its agents only",
                name="model",
                value=name[:_MAX_NAME],
            )
        model = models[name]
    settings = _settings(request.settings)
    if settings is None:
        return model
    return with_settings(model, settings)


def _settings(settings: PlaySettings | None) -> ModelSettings | None:
    if settings is None:
        return None
    values = settings.model_dump(exclude_none=True)
    if not values:
        return None
    return ModelSettings(**values)


def changed_context(ctx: PromptContext, request: CompositionRequest) -> PromptContext:
    """Return a context with the input, the kwargs and the messages of a request.

    Raises:
        ContextError: Changed messages do not exist. The error lists all of them.
    """
    if request.input is not None or request.kwargs is not None:
        value, kwargs = ctx.user_input.input, ctx.user_input.additional_kwargs
        if request.input is not None:
            value = request.input
        if request.kwargs is not None:
            kwargs = request.kwargs
        ctx = ctx.evolve(user_input=UserInput(value, kwargs))
    if not request.messages:
        return ctx
    changed = {"conversation": [*ctx.conversation], "intermediate": [*ctx.intermediate]}
    problems: list[tuple[str, str]] = []
    for pointer, text in request.messages.items():
        match = _POINTER.fullmatch(pointer)
        messages: list[Message] = []
        if match is not None:
            messages = changed[match[1]]
        if match is None or int(match[2]) >= len(messages):
            problems.append((pointer[:_MAX_NAME], "no message has this name"))
        elif not isinstance(messages[int(match[2])].content, str):
            problems.append((pointer[:_MAX_NAME], "a message with media cannot be changed here"))
        else:
            messages[int(match[2])] = _with_text(messages[int(match[2])], text)
    if problems:
        raise ContextError("messages", problems)
    return ctx.evolve(
        conversation=Conversation(changed["conversation"]), intermediate=Conversation(changed["intermediate"])
    )


def _with_text(message: Message, text: str) -> Message:
    # Thinking and opaque fields of the provider belong to the original text.
    return Message(message.role, text, message.tool_calls, message.tool_call_id, message.name)
