"""Models of agents, from a `Model` or from the name of a model with a chat template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from agentkit.agent_files.yaml_lines import YamlFile
from agentkit.errors import AgentDefinitionError, AgentError
from agentkit.models import model_names
from agentkit.models.model import Model
from agentkit.models.model_errors import ModelError
from agentkit.models.prices import Price
from agentkit.models.settings import ModelSettings
from agentkit_memory import StoreError
from agentkit_prompts.chat_templates.guard.control_tokens import Policy
from agentkit_prompts.chat_templates.template_finder import GivenTemplate
from agentkit_prompts.errors import ChatTemplateError, PromptError
from agentkit_tools import ToolError

ERRORS = (AgentError, ModelError, PromptError, ToolError, StoreError, ValidationError, TypeError, ValueError, OSError)
"""Errors of invalid parts of an agent, such as its model."""
NEEDS_ADDRESS = "a chat template requires a model with an address, such as http://localhost:8000/v1#qwen3"


def check_template_allowed(model: Model | str) -> None:
    """Refuse a chat template of the caller for a `Model` object, which is used unchanged.

    Raises:
        AgentDefinitionError: The model is a `Model`.
    """
    if not isinstance(model, str):
        raise AgentDefinitionError(
            f"chat_template: a Model object is used unchanged: {NEEDS_ADDRESS}", name="chat_template"
        )


def agent_model(
    model: Model | str,
    template: GivenTemplate | None,
    session_len: int | None,
    settings: ModelSettings,
    control_tokens: Policy | None,
    template_kwargs: Mapping[str, Any],
    price: Price | None = None,
) -> Model:
    """Return the model of an agent: a `Model` unchanged, or the model with a name.

    Args:
        model: A model or its name; the other arguments apply only to a name.
        template: Chat template of the model.
        session_len: Maximum tokens of prompt and reply.
        settings: Settings of the model.
        control_tokens: Treatment of untrusted text that contains control tokens of the chat template.
        template_kwargs: Further variables of the chat template.
        price: Price of the model.
    """
    if not isinstance(model, str):
        return model
    return model_names.model(
        model,
        settings=settings,
        chat_template=template,
        session_len=session_len,
        control_tokens=control_tokens,
        template_kwargs=template_kwargs or None,
        price=price,
    )


def invalid_argument(
    error: Exception, model: Model | str | None, chat_template: GivenTemplate | None
) -> Literal["model", "chat_template"] | None:
    """Return the argument of `load_agent` that caused an error of the model; None if the agent file caused it.

    Args:
        error: The error of the model.
        model: The argument `model`.
        chat_template: The argument `chat_template`.
    """
    is_about_template = isinstance(error, ChatTemplateError)
    if chat_template is not None:
        is_about_template = is_about_template or getattr(error, "name", None) == "chat_template"
        if is_about_template or model is None:
            return "chat_template"
    if is_about_template or model is None:
        return None
    return "model"


def named_options(error: Exception) -> list[str]:
    """Return the names of options in an error of a model."""
    return f"{getattr(error, 'name', None)}, {getattr(error, 'value', None)}".split(", ")


def setting_places(error: Exception, file: YamlFile, argument: str, *, names_model: bool) -> list[str]:
    """Return the places, in an agent file, of the settings that cause an error of an argument of `load_agent`.

    Args:
        error: The error of the model.
        file: The agent file.
        argument: The argument: `model` or `chat_template`.
        names_model: True if the file names the model.
    """
    places = []
    for name in named_options(error):
        # The chat template of the caller overrides the chat template of the file.
        if name == argument:
            continue
        for place in (("model", name), ("model", "settings", name), ("model", "template_kwargs", name)):
            if place in file.lines:
                places.append(f"{name} is in {file.name}, line {file.lines[place]}")
    if names_model and not isinstance(error, ChatTemplateError):
        places.append(f"the model is in {file.name}, line {file.line(('model', 'name'))}")
    return places
