"""Providers of models: their names in `openai:gpt-5-mini` and in spans, and their model classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["DOMAINS_IN_SPANS", "PROVIDERS", "Provider"]


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

DOMAINS_IN_SPANS: Mapping[str, str] = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "deepseek.com": "deepseek",
    "groq.com": "groq",
    "mistral.ai": "mistral_ai",
    "moonshot.ai": "moonshot_ai",
    "moonshot.cn": "moonshot_ai",
    "perplexity.ai": "perplexity",
    "cohere.com": "cohere",
    "cohere.ai": "cohere",
    "x.ai": "x_ai",
}
"""Names of providers in spans by the domain of their endpoints; other endpoints are named by the model class."""
