"""Models by name: `openai:gpt-5-mini`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.errors import AgentDefinitionError
from agentkit.models.model import Model
from agentkit.models.settings import with_settings
from agentkit_prompts.errors import nearest

__all__ = ["changed_model", "model_named"]

_PROVIDERS = ("openai", "offline")


def model_named(name: str) -> Model:
    """Return the model of a name, PROVIDER:MODEL.

    Raises:
        AgentDefinitionError: There is no such provider, or the name has none.
    """
    provider, colon, model = name.partition(":")
    if provider == "offline" and not model:
        from agentkit.models.offline import OfflineModel

        return OfflineModel()
    if colon and provider == "openai" and model:
        from agentkit.models.openai_chat import OpenAIModel

        return OpenAIModel(model)
    if colon:
        raise AgentDefinitionError(f"model {name!r}: there is no provider {provider!r}{nearest(provider, _PROVIDERS)}")
    raise AgentDefinitionError(
        f"model {name!r}: expected a model, such as OpenAIModel({name!r}), or its name with the provider, "
        f'such as "openai:{name}"'
    )


def changed_model(model: Model, changes: Mapping[str, Any]) -> Model:
    """Return the model of a run that is given another one, or other settings.

    Raises:
        AgentDefinitionError: There is no such model, or it cannot do one of the settings.
    """
    found = changes.get("model", model)
    found = model_named(found) if isinstance(found, str) else found
    return with_settings(found, changes["settings"]) if "settings" in changes else found
