"""Models behind Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from agentkit.models.anthropic.anthropic_reader import AnthropicReader
from agentkit.models.anthropic.claude_models import ClaudeRules, claude_rules
from agentkit.models.http.endpoint import DeltaSink, EndpointModel, EndpointOptions
from agentkit.models.http.sdk_clients import ANTHROPIC
from agentkit.models.model import OnDelta
from agentkit.models.model_errors import ModelInterrupted
from agentkit.models.settings import Fields, ModelSettings, merged_body, set_per_request

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

    from agentkit_prompts.composition.composition import Composition

__all__ = ["AnthropicModel"]

_MAX_TOKENS = 8192
"""Tokens of a reply where its settings name no limit: the API wants one."""
_MIN_THINKING = 1024
_MIN_TOP_P = 0.95
"""Beside a budget for thinking."""
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
"""Words of `tool_choice`, as the API calls them; another text is the name of a tool."""
_MAX_PAUSES = 20
"""How often a turn that the provider paused is sent back to be continued."""


def _temperature(value: float) -> Mapping[str, Any]:
    if value > 1:
        raise ValueError("expected a number from 0 to 1")
    return {"temperature": value}


def _stop(value: str | tuple[str, ...]) -> Mapping[str, Any]:
    return {"stop_sequences": [value] if isinstance(value, str) else [*value]}


def _thinking(value: int) -> Mapping[str, Any]:
    if 0 < value < _MIN_THINKING:
        raise ValueError(f"expected 0, or {_MIN_THINKING} and more")
    if value:
        return {"thinking": {"type": "enabled", "budget_tokens": value}}
    return {}


_FIELDS: Fields = {
    "temperature": _temperature,
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "stop": _stop,
    "effort": lambda value: {} if value == "none" else {"output_config": {"effort": value}},
    "thinking_tokens": _thinking,
    "tool_choice": set_per_request,
    "parallel_tool_calls": set_per_request,
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

    def _apply_settings(self, settings: ModelSettings) -> None:
        super()._apply_settings(settings)
        if settings.effort == "none" or settings.thinking_tokens == 0:
            self._settings_body = merged_body(
                {"thinking": {"type": claude_rules(self.name).no_thinking}}, self._settings_body
            )
        # The API counts thoughts as part of `max_tokens`.
        self._settings_body.setdefault("max_tokens", _MAX_TOKENS + (settings.thinking_tokens or 0))

    def _refused_settings(self, settings: ModelSettings) -> Iterator[str]:
        yield from _not_taken(settings, claude_rules(self.name))
        yield from _conflicts(settings)

    def _body(self, composition: Composition) -> dict[str, Any]:
        body = {"model": self.name, **composition.to_anthropic()}
        choice, parallel = self._tool_choice(composition), self.settings.parallel_tool_calls
        if not composition.tools:
            parallel = None
        if choice is None and parallel is None:
            return body
        # The limit of calls is part of `tool_choice`, so it needs one, and the default is `auto`.
        named: dict[str, Any] = {"type": _CHOICES.get(choice or "auto", "tool")}
        if named["type"] == "tool":
            named["name"] = choice
        if parallel is not None and choice != "none":
            named["disable_parallel_tool_use"] = not parallel
        body["tool_choice"] = named
        return body

    def _reader(self, composition: Composition) -> AnthropicReader:
        return AnthropicReader()

    async def _read_reply(self, body: dict[str, Any], composition: Composition, sink: DeltaSink) -> AnthropicReader:
        reader = await self._send_with_retries(body, AnthropicReader, sink)
        for _ in range(_MAX_PAUSES):
            if not reader.is_paused:
                return reader
            if (left := self._tokens_left(reader)) is not None and left < 1:
                reader.finish_reason = "length"
                return reader
            reader = await self._continued(body, reader, left, sink.on_delta)
        if reader.is_paused:
            why = f"the provider paused the turn more than {_MAX_PAUSES} times"
            raise ModelInterrupted.after(reader.text, why, model=self.name, host=self.host)
        return reader

    async def _continued(
        self, body: dict[str, Any], before: AnthropicReader, left: int | None, on_delta: OnDelta | None
    ) -> AnthropicReader:
        """Send a turn that the provider paused back, and return the reader of its rest."""
        again = {**body, "messages": [*body["messages"]]}
        if content := before.content():
            again["messages"].append({"role": "assistant", "content": content})
        if left is not None:
            again["max_tokens"] = left
        return await self._send_with_retries(again, lambda: AnthropicReader(before), DeltaSink(on_delta))

    def _tokens_left(self, reader: AnthropicReader) -> int | None:
        """Return how many tokens the rest of a turn may have, beside those of its thoughts; None without a limit."""
        if self.settings.max_tokens is None:
            return None
        left = self.settings.max_tokens - reader.usage.output_tokens
        # A budget for thinking has to be less than the tokens of the reply.
        if left <= (self.settings.thinking_tokens or 0):
            return 0
        return left


def _not_taken(settings: ModelSettings, rules: ClaudeRules) -> Iterator[str]:
    """Yield the settings that the model refuses."""
    yield from _refused_sampling(settings, rules)
    if settings.thinking_tokens and not rules.thinking_budget:
        problem = "it does not think"
        if rules.efforts:
            problem = "effort sets how much it thinks"
        yield f"thinking_tokens={settings.thinking_tokens}: this model does not take it: {problem}"
    if rules.no_thinking is None:
        for name, value in (("effort", settings.effort), ("thinking_tokens", settings.thinking_tokens)):
            if value in ("none", 0):
                yield f"{name}={value!r}: this model always thinks; leave it out, or set effort='low'"
    if settings.effort not in (None, "none", *rules.efforts):
        problem = "this model has no effort"
        if rules.efforts:
            problem = f"expected one of none, {', '.join(rules.efforts)}"
        yield f"effort={settings.effort!r}: {problem}"
    if settings.tool_choice not in (None, "auto", "none") and not rules.forced_tools:
        yield f"tool_choice={settings.tool_choice!r}: this model cannot be made to call a tool; leave it out"


def _refused_sampling(settings: ModelSettings, rules: ClaudeRules) -> Iterator[str]:
    advice = "leave it out, or send it with extra={...} if the model takes it by now"
    if rules.sampling == "none":
        for name in ("temperature", "top_p", "top_k"):
            value = getattr(settings, name)
            if value is not None:
                yield f"{name}={value}: this model does not take it; {advice}"
    elif rules.sampling == "one" and settings.temperature is not None and settings.top_p is not None:
        yield f"temperature={settings.temperature} and top_p={settings.top_p}: this model takes one of them; {advice}"


def _conflicts(settings: ModelSettings) -> Iterator[str]:
    """Yield what the API refuses beside a budget for thinking."""
    budget = settings.thinking_tokens
    if not budget:
        return
    if settings.max_tokens is not None and settings.max_tokens <= budget:
        yield f"max_tokens={settings.max_tokens} must be more than thinking_tokens={budget}"
    if settings.temperature not in (None, 1):
        yield f"temperature={settings.temperature} cannot be combined with thinking_tokens: leave it out"
    if settings.top_p is not None and settings.top_p < _MIN_TOP_P:
        yield f"top_p={settings.top_p} must be at least {_MIN_TOP_P} with thinking_tokens"
    if settings.top_k is not None:
        yield f"top_k={settings.top_k} cannot be combined with thinking_tokens: leave it out"
    if settings.tool_choice not in (None, "auto", "none"):
        yield f"tool_choice={settings.tool_choice!r} cannot be combined with thinking_tokens: leave it out"
    if settings.effort == "none":
        yield "effort='none' cannot be combined with thinking_tokens: leave one of them out"
