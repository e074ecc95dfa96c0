"""The providers of models: their names in `openai:gpt-5-mini` and in spans, and the classes that ask them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["PROVIDERS", "Provider"]


class Provider(NamedTuple):
    """Who answers."""

    model: str
    """The name of its class in `agentkit.models`."""
    in_spans: str | None = None
    """Its name in spans; None where these have that of the class."""


PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider("OpenAIModel", "openai"),
    "responses": Provider("OpenAIResponsesModel", "openai"),
    "anthropic": Provider("AnthropicModel", "anthropic"),
    "gemini": Provider("GeminiModel", "gcp.gemini"),
    "deepseek": Provider("DeepSeekModel", "deepseek"),
    "offline": Provider("OfflineModel"),
}
"""By what stands in front of the colon."""
