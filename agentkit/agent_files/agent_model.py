"""Models of agents, from a `Model` or from the name of a model with a chat template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.errors import AgentDefinitionError
from agentkit.models import model_names
from agentkit.models.model import Model
from agentkit.models.settings import ModelSettings
from agentkit_prompts.chat_templates.guard.control_tokens import Policy
from agentkit_prompts.chat_templates.template_finder import GivenTemplate

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
) -> Model:
    """Return the model of an agent: a `Model` unchanged, or the model with a name.

    Args:
        model: A model or its name; the other arguments apply only to a name.
        template: Chat template of the model.
        session_len: Maximum tokens of prompt and reply.
        settings: Settings of the model.
        control_tokens: Treatment of untrusted text that contains control tokens of the chat template.
        template_kwargs: Further variables of the chat template.
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
    )
