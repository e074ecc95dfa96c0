"""Control tokens of a model by its name."""

from __future__ import annotations

from functools import lru_cache

from agentkit_prompts.chat_templates.builtin.builtin import tokens_without_template
from agentkit_prompts.chat_templates.guard.control_tokens import (
    ControlTokens,
    control_tokens_of,
    texts_of_tokens,
    tokens_of,
)
from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES
from agentkit_prompts.errors import ChatTemplateError
from agentkit_prompts.limits import MAX_CACHED

BRACKETS = ("<", "[", "]")
"""First characters of `all_tokens`."""


@lru_cache(maxsize=MAX_CACHED)
def tokens_of_model(model: str) -> ControlTokens | None:
    """Return the tokens of the chat template that fits the name of a model; None if no template fits."""
    try:
        return tokens_of(CHAT_TEMPLATES.get(CHAT_TEMPLATES.best_match(model))())
    except ChatTemplateError:
        return None


def all_tokens() -> ControlTokens:
    """Return the tokens in brackets of all registered templates, and of models without such a template.

    Markers of words, such as `User:`, would change ordinary text.
    """
    return _bracketed_tokens(tuple(CHAT_TEMPLATES))


@lru_cache(maxsize=1)
def _bracketed_tokens(names: tuple[str, ...]) -> ControlTokens:
    # `tokens_of` of each template would compile its patterns, which takes half a second for all templates.
    tokens = [token.strip() for name in names for token in texts_of_tokens(CHAT_TEMPLATES.get(name)())]
    tokens += tokens_without_template()
    return control_tokens_of(tuple(dict.fromkeys([token for token in tokens if token.startswith(BRACKETS)])))
