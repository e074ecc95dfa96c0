"""Models behind Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from agentkit.errors import AgentDefinitionError
from agentkit.models.anthropic_reader import AnthropicReader
from agentkit.models.endpoint import EndpointModel, EndpointOptions
from agentkit.models.sdk_clients import ANTHROPIC
from agentkit.models.settings import Fields, ModelSettings, by_request

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

    from agentkit_prompts.composition.composition import Composition

__all__ = ["AnthropicModel"]

_MAX_TOKENS = 8192
"""Tokens of a reply where its settings name no limit: the API wants one."""
_MIN_THINKING = 1024
_EFFORTS = ("low", "medium", "high", "xhigh", "max")


def _temperature(value: float) -> Mapping[str, Any]:
    if value > 1:
        raise ValueError("expected a number from 0 to 1")
    return {"temperature": value}


def _stop(value: str | tuple[str, ...]) -> Mapping[str, Any]:
    return {"stop_sequences": [value] if isinstance(value, str) else [*value]}


def _effort(value: str) -> Mapping[str, Any]:
    if value == "none":
        return {"thinking": {"type": "disabled"}}
    if value not in _EFFORTS:
        raise ValueError(f"expected one of none, {', '.join(_EFFORTS)}")
    return {"output_config": {"effort": value}}


def _thinking(value: int) -> Mapping[str, Any]:
    if value == 0:
        return {"thinking": {"type": "disabled"}}
    if value < _MIN_THINKING:
        raise ValueError(f"expected 0, or {_MIN_THINKING} and more")
    return {"thinking": {"type": "enabled", "budget_tokens": value}}


_FIELDS: Fields = {
    "temperature": _temperature,
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "stop": _stop,
    "effort": _effort,
    "thinking_tokens": _thinking,
    "tool_choice": by_request,
    "parallel_tool_calls": by_request,
    "service_tier": "service_tier",
}


class AnthropicModel(EndpointModel):
    """Talks to Anthropic's messages API, or a server that speaks it, through the official `anthropic` SDK.

    `api_key` and `base_url` fall back to ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL, read at the first request; the base
    URL ends where /v1/messages begins. The other options are those of `EndpointOptions`. Without `max_tokens` a reply
    may have 8,192, what it thinks not counted.

    Cache marks stand at the breakpoints of the composition. What the model thought goes back with its signature, and so
    do steps that the provider took itself.

    Raises:
        ModelRequestError: `base_url` is not an http address.
        AgentDefinitionError: Names every setting that the API does not have, or does not take beside another one.
    """

    sdk = ANTHROPIC
    path = "/v1/messages"
    noun = "message"

    def __init__(self, model: str, *, client: AsyncAnthropic | None = None, **options: Unpack[EndpointOptions]) -> None:
        super().__init__(model, client=client, **options)

    def _fields(self) -> Fields:
        return _FIELDS

    def _set(self, settings: ModelSettings) -> None:
        super()._set(settings)
        budget = settings.thinking_tokens or 0
        if wrong := _conflicts(settings, budget):
            raise AgentDefinitionError(f"model {self.name!r}: settings: {'; '.join(wrong)}")
        self._fixed.setdefault("max_tokens", _MAX_TOKENS + budget)

    def _body(self, composition: Composition) -> dict[str, Any]:
        body = {"model": self.name, **composition.to_anthropic()}
        choice, parallel = self._tool_choice(composition), self.settings.parallel_tool_calls
        if choice is not None or (parallel is not None and composition.tools):
            kinds = {"required": "any", None: "auto"}
            named = {"type": kinds.get(choice, choice)}
            if choice not in (None, "auto", "none", "required"):
                named = {"type": "tool", "name": choice}
            if parallel is not None and choice != "none":
                named["disable_parallel_tool_use"] = not parallel  # type: ignore[assignment]
            body["tool_choice"] = named
        return body

    def _reader(self, composition: Composition) -> AnthropicReader:
        return AnthropicReader()


def _conflicts(settings: ModelSettings, budget: int) -> list[str]:
    """Return what the API refuses beside a budget for thinking."""
    if not budget:
        return []
    wrong = []
    if settings.max_tokens is not None and settings.max_tokens <= budget:
        wrong.append(f"max_tokens={settings.max_tokens} must be more than thinking_tokens={budget}")
    if settings.temperature not in (None, 1):
        wrong.append(f"temperature={settings.temperature} cannot be beside thinking_tokens: leave it out")
    if settings.top_k is not None:
        wrong.append(f"top_k={settings.top_k} cannot be beside thinking_tokens: leave it out")
    if settings.tool_choice not in (None, "auto", "none"):
        wrong.append(f"tool_choice={settings.tool_choice!r} cannot be beside thinking_tokens: leave it out")
    if settings.effort == "none":
        wrong.append("effort='none' cannot be beside thinking_tokens: leave one of them out")
    return wrong
