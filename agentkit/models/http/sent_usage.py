"""Token counts of a reply, at the places and under the names that servers use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from agentkit.models.http.reader import ProtocolError, count_of
from agentkit.models.model import NO_USAGE, Usage
from agentkit_prompts.errors import brief

_INPUT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_REPLY_DETAILS = ("completion_tokens_details", "output_tokens_details")
_CACHED = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens", "num_cached_tokens")


def usage_in(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the usage of a document: of the document, of the gateway or of a choice; empty without a usage.

    Raises:
        ProtocolError: The usage of the document is not an object.
    """
    usage = data.get("usage")
    if usage and not isinstance(usage, dict):
        raise ProtocolError(f"usage: expected a JSON object, got {brief(usage)}")
    if _has_counts(usage):
        return cast("Mapping[str, Any]", usage)
    holders: list[object] = [data.get("x_groq")]
    choices = data.get("choices")
    if isinstance(choices, list):
        for choice in choices:
            if isinstance(choice, dict):
                holders += (choice, choice.get("delta"), choice.get("message"))
    for holder in holders:
        if isinstance(holder, dict) and "usage" in holder and _has_counts(holder["usage"]):
            return cast("Mapping[str, Any]", holder["usage"])
    return {}


def _has_counts(usage: object) -> bool:
    """True if a usage contains a count that is not 0, which is the default of gateways."""
    return isinstance(usage, dict) and any(map(count_of, usage.values()))


def chat_usage(usage: Mapping[str, Any], before: Usage = NO_USAGE) -> Usage:
    """Return the counts of chat completions and responses.

    `before` are the counts of earlier events: a later count of 0 is the default of a gateway.
    """
    details = [inner for key in _DETAILS if isinstance(inner := usage.get(key), Mapping)]
    cached = _first([*details, usage], _CACHED)
    details = [inner for key in _REPLY_DETAILS if isinstance(inner := usage.get(key), Mapping)]
    reasoning = _first([*details, usage], ("reasoning_tokens",))
    return Usage(
        _first([usage], _INPUT) or before.input_tokens,
        _first([usage], _OUTPUT) or before.output_tokens,
        cached or before.cached_tokens,
        reasoning_tokens=reasoning or before.reasoning_tokens,
    )


def _first(places: list[Mapping[str, Any]], keys: tuple[str, ...]) -> int:
    """Return the first count that is not 0."""
    return next((count for place in places for key in keys if (count := count_of(place.get(key)))), 0)
