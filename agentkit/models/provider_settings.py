"""Conversions of settings to the fields of chat-completions endpoints, which the rows of providers combine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentkit.models.settings import Fields, set_per_request

SAMPLING: Fields = {"temperature": "temperature", "top_p": "top_p"}
OPEN_SAMPLING: Fields = {**SAMPLING, "top_k": "top_k", "seed": "seed"}
"""Sampling of servers of open models."""
CHAT: Fields = {
    **SAMPLING,
    "max_tokens": "max_tokens",
    "stop": "stop",
    "tool_choice": set_per_request,
}
"""Settings of most endpoints."""
_ALL: Fields = {
    **CHAT,
    "seed": "seed",
    "effort": "reasoning_effort",
    "parallel_tool_calls": set_per_request,
    "prompt_cache_key": "prompt_cache_key",
    "service_tier": "service_tier",
}
# OpenAI's reasoning models refuse the old name of the token limit, other servers do not know the new name.
OF_OPENAI: Fields = {**_ALL, "max_tokens": "max_completion_tokens"}
OF_OTHERS: Fields = {**_ALL, "top_k": "top_k"}
"""Settings of an endpoint whose provider is unknown."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """A conversion of a setting with a few values. A class, because a function inside of a function has no pickle."""

    bodies: Mapping[str, Mapping[str, Any]]
    """Body of the request by value."""
    accepts_names: bool = False
    """True if other texts than `auto`, `none` and `required` are accepted too: names of tools."""

    def __call__(self, value: str) -> Mapping[str, Any]:
        """Return the body for a value.

        Raises:
            ValueError: The endpoint does not accept the value.
        """
        if self.accepts_names and value not in ("auto", "none", "required"):
            return {}
        if value not in self.bodies:
            raise ValueError(f"expected one of {', '.join(self.bodies)}")
        return self.bodies[value]


def efforts(*values: str, **other: Mapping[str, Any]) -> OneOf:
    """Return a conversion of `effort`.

    Args:
        values: Values that the endpoint accepts as `reasoning_effort`.
        other: Body of the request by other values.
    """
    return OneOf({**other, **{value: {"reasoning_effort": value} for value in values}})


def choices(*values: str, names: bool = False) -> OneOf:
    """Return a conversion of `tool_choice`, for an endpoint that does not support every choice.

    Args:
        values: The supported values of `auto`, `none` and `required`.
        names: True if the endpoint supports the name of a tool.
    """
    return OneOf({value: {} for value in values}, names)


def thinking_effort(*values: str) -> OneOf:
    """Return a conversion of `effort` for endpoints that switch thinking on and off with an object `thinking`.

    `none` switches thinking off; `values` are accepted as `reasoning_effort`.
    """
    return efforts(*values, none={"thinking": {"type": "disabled"}})


def reasoning_effort(value: str) -> Mapping[str, Any]:
    """Return the effort of OpenRouter."""
    return {"reasoning": {"effort": value}}


def reasoning_budget(value: int) -> Mapping[str, Any]:
    """Return the budget of thinking of OpenRouter."""
    return {"reasoning": {"max_tokens": value}}


def google_budget(value: int) -> Mapping[str, Any]:
    """Return the budget of thinking of Gemini."""
    return {"extra_body": {"google": {"thinking_config": {"thinking_budget": value}}}}


def qwen_budget(value: int) -> Mapping[str, Any]:
    """Return the budget of thinking of Qwen; 0 switches thinking off."""
    if value == 0:
        return {"enable_thinking": False}
    return {"enable_thinking": True, "thinking_budget": value}


def anthropic_budget(value: int) -> Mapping[str, Any]:
    """Return the budget of thinking in the form of Anthropic; 0 switches thinking off."""
    if value == 0:
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": "enabled", "budget_tokens": value}}


def at_most_one(value: str | tuple[str, ...]) -> Mapping[str, Any]:
    """Return one stop word as a list.

    Raises:
        ValueError: There are several stop words.
    """
    stops = [value] if isinstance(value, str) else [*value]
    if len(stops) > 1:
        raise ValueError("expected one text, because the endpoint accepts only one")
    return {"stop": stops}


def temperature_above_zero(value: float) -> Mapping[str, Any]:
    """Return a temperature for an endpoint that refuses 0.

    Raises:
        ValueError: The temperature is 0 or above 1.
    """
    if not 0 < value <= 1:
        raise ValueError("expected a number above 0, and at most 1")
    return {"temperature": value}
