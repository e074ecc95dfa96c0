"""Minimum lengths of prompts that the caches of providers store."""

from __future__ import annotations

import re
from typing import NamedTuple

from agentkit.models.abilities import model_path
from agentkit.models.model import Model


class CacheMinimum(NamedTuple):
    """Minimum length of a prefix that the prompt cache of a provider stores."""

    provider: str
    tokens: int


_ROWS: tuple[tuple[str, str, CacheMinimum], ...] = (
    ("api.openai.com", "gpt-(4o|4\\.1|4\\.5|[5-9])|o[1-9]|chatgpt", CacheMinimum("OpenAI", 1024)),
    ("api.anthropic.com", "claude-(opus-5|fable-5|mythos-5)(-[0-9]{8})?$", CacheMinimum("Anthropic", 512)),
    ("api.anthropic.com", "claude-(opus-4-[56]|haiku-4-5)", CacheMinimum("Anthropic", 4096)),
    ("api.anthropic.com", "claude-(opus-4-7|3-haiku|3-5-haiku)", CacheMinimum("Anthropic", 2048)),
    (
        "api.anthropic.com",
        "claude-(opus-4|sonnet-4|3-|sonnet-5(-[0-9]{8})?$)",
        CacheMinimum("Anthropic", 1024),
    ),
    ("generativelanguage.googleapis.com", "gemini-2\\.5", CacheMinimum("Gemini", 2048)),
    ("generativelanguage.googleapis.com", "gemini-([3-9]|latest)", CacheMinimum("Gemini", 4096)),
    ("api.deepseek.com", "deepseek", CacheMinimum("DeepSeek", 64)),
)
"""Host of the endpoint, pattern of the start of a model name, and the minimum; the first match applies. From the
guides on prompt caching of the providers (developers.openai.com, platform.claude.com, ai.google.dev,
api-docs.deepseek.com), as of November 2026. A model without a published minimum has no row."""


def cache_minimum(model: Model) -> CacheMinimum | None:
    """Return the minimum length for the cache of the provider; None if it is unknown."""
    first = model_path(model)[-1]
    host, name = getattr(first, "host", ""), first.name.lower().removeprefix("models/")
    for row_host, pattern, minimum in _ROWS:
        if host == row_host and re.match(pattern, name):
            return minimum
    return None
