"""Models by name: `openai:gpt-5-mini`."""

from __future__ import annotations

from agentkit.errors import AgentDefinitionError
from agentkit.models.model import Model
from agentkit_prompts.errors import nearest

__all__ = ["model_named"]

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
