"""Providers of models: their names in `openai:gpt-5-mini` and in spans, and their model classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["PROVIDERS", "Provider"]


class Provider(NamedTuple):
    """A provider of models."""

    model: str
    """Name of the model class in `agentkit.models`."""
    in_spans: str | None = None
    """Name of the provider in spans; None if spans contain the name of the class instead."""


PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider("OpenAIModel", "openai"),
    "responses": Provider("OpenAIResponsesModel", "openai"),
    "anthropic": Provider("AnthropicModel", "anthropic"),
    "gemini": Provider("GeminiModel", "gcp.gemini"),
    "deepseek": Provider("DeepSeekModel", "deepseek"),
    "offline": Provider("OfflineModel"),
}
"""Providers by the prefix of a model name before the colon."""
