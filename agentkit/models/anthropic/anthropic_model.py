"""Models of Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from agentkit.models.anthropic.anthropic_reader import AnthropicReader
from agentkit.models.anthropic.claude_models import ClaudeRules, claude_rules
from agentkit.models.http.delta_sink import DeltaSink
from agentkit.models.http.endpoint import EndpointModel
from agentkit.models.http.endpoint_options import EndpointOptions
from agentkit.models.http.sdk_clients import ANTHROPIC
from agentkit.models.model import OnDelta
from agentkit.models.model_errors import ModelInterrupted
from agentkit.models.providers import PROVIDERS
from agentkit.models.settings import Fields, ModelSettings, merged_body, set_per_request
from agentkit_prompts.context.wire.owner import Owner

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

    from agentkit_prompts.composition.composition import Composition

_MAX_TOKENS = 8192
"""Maximum tokens of a reply without the setting `max_tokens`, because the API requires a limit."""
_MIN_THINKING = 1024
_MIN_TOP_P = 0.95
"""Minimum `top_p` with a thinking budget."""
_WITH_BUDGET: Mapping[str, tuple[Any, ...]] = {
    "temperature": (None, 1),
    "top_k": (None,),
    "tool_choice": (None, "auto", "none"),
}
"""Values allowed for other settings if a thinking budget is set."""
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
"""Values of `tool_choice` in the API; any other text is the name of a tool."""
_BETA = "anthropic-beta"
"""Header with the names of functions of the API that are not final."""
_CONTEXT_BETA = "context-management-2025-06-27"
_MAX_PAUSES = 20
"""Maximum number of continuations of a turn that the provider paused."""


def _temperature(value: float) -> Mapping[str, Any]:
    if value > 1:
        raise ValueError("expected a number from 0 to 1")
    return {"temperature": value}


def _stop(value: str | tuple[str, ...]) -> Mapping[str, Any]:
    if isinstance(value, str):
        return {"stop_sequences": [value]}
    return {"stop_sequences": [*value]}


def _effort(value: str) -> Mapping[str, Any]:
    # `AnthropicModel` sends the effort "none" as the field `thinking`.
    if value == "none":
        return {}
    return {"output_config": {"effort": value}}


def _thinking(value: int) -> Mapping[str, Any]:
    if 0 < value < _MIN_THINKING:
        raise ValueError(f"expected 0, or at least {_MIN_THINKING}")
    if value:
        return {"thinking": {"type": "enabled", "budget_tokens": value}}
    return {}


def _clearing(value: int) -> Mapping[str, Any]:
    edit = {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": value}}
    return {"context_management": {"edits": [edit]}}


_FIELDS: Fields = {
    "temperature": _temperature,
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "stop": _stop,
    "effort": _effort,
    "thinking_tokens": _thinking,
    "tool_choice": set_per_request,
    "parallel_tool_calls": set_per_request,
    "compact_above": _clearing,
    "service_tier": "service_tier",
}


class AnthropicModel(EndpointModel):
    """A model of Anthropic's messages API or a compatible server, requested through the `anthropic` SDK.

    `api_key` and `base_url` default to ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL, read at the first request; the base
    URL does not contain /v1/messages. `EndpointOptions` describes the other options. Without `max_tokens` a reply may
    have 8,192 tokens, plus the budget of `thinking_tokens`; without this setting, thinking counts toward the limit.

    The breakpoints of the composition become cache marks. The thinking of the model, with its signature, and the tool
    results of the provider are sent back to the same host with the next request; signed thinking only to the same
    model.

    Raises:
        ModelRequestError: `base_url` is not an http address.
        AgentDefinitionError: Names every setting that the API does not support, or does not accept with another
            setting.
    """

    sdk = ANTHROPIC
    provider = PROVIDERS["anthropic"]
    path = "/v1/messages"
    models_path = "/v1/models?limit=1000"
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
        # The API counts thinking as part of `max_tokens`.
        self._settings_body.setdefault("max_tokens", _MAX_TOKENS + (settings.thinking_tokens or 0))

    def _refused_settings(self, settings: ModelSettings) -> Iterator[str]:
        yield from _unsupported(settings, claude_rules(self.name))
        yield from _conflicts(settings)

    @property
    def _headers(self) -> Mapping[str, str]:
        headers = self.settings.headers
        if self.settings.compact_above is None:
            return headers
        names = [value for name, value in headers.items() if name.lower() == _BETA]
        rest = {name: value for name, value in headers.items() if name.lower() != _BETA}
        return {**rest, _BETA: ",".join([*names, _CONTEXT_BETA])}

    def _body(self, composition: Composition) -> dict[str, Any]:
        body = {"model": self.name, **composition.to_anthropic(self.host, model=self.name)}
        choice, parallel = self._tool_choice(composition), self.settings.parallel_tool_calls
        if not composition.tools:
            parallel = None
        if choice is None and parallel is None:
            return body
        # The limit of tool calls is a part of `tool_choice`, so the default `auto` is sent too.
        tool_choice: dict[str, Any] = {"type": _CHOICES.get(choice or "auto", "tool")}
        if tool_choice["type"] == "tool":
            tool_choice["name"] = choice
        if parallel is not None and choice != "none":
            tool_choice["disable_parallel_tool_use"] = not parallel
        body["tool_choice"] = tool_choice
        return body

    def _reader(self, composition: Composition) -> AnthropicReader:
        return AnthropicReader(Owner("anthropic", self.host, self.name))

    async def _read_reply(self, body: dict[str, Any], composition: Composition, sink: DeltaSink) -> AnthropicReader:
        reader = await self._send_with_retries(body, lambda: self._reader(composition), sink)
        for _ in range(_MAX_PAUSES):
            if not reader.is_paused:
                return reader
            remaining = self._remaining_tokens(reader)
            if remaining is not None and remaining < 1:
                reader.finish_reason = "length"
                return reader
            reader = await self._continue_turn(body, reader, remaining, sink.on_delta)
        if reader.is_paused:
            reason = f"the provider paused the turn more than {_MAX_PAUSES} times"
            raise ModelInterrupted.after(reader.text, reason, model=self.name, host=self.host)
        return reader

    async def _continue_turn(
        self, body: dict[str, Any], paused_reader: AnthropicReader, max_tokens: int | None, on_delta: OnDelta | None
    ) -> AnthropicReader:
        """Send back a turn that the provider paused, and return the reader of the continued turn."""
        body = {**body, "messages": [*body["messages"]]}
        if content := paused_reader.content():
            body["messages"].append({"role": "assistant", "content": content})
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
        owner = paused_reader.owner
        return await self._send_with_retries(body, lambda: AnthropicReader(owner, paused_reader), DeltaSink(on_delta))

    def _remaining_tokens(self, reader: AnthropicReader) -> int | None:
        """Return the maximum tokens of the rest of a turn; None without a limit."""
        if self.settings.max_tokens is None:
            return None
        remaining = self.settings.max_tokens - reader.usage.output_tokens
        # The API requires a thinking budget below the maximum tokens of the reply.
        if remaining <= (self.settings.thinking_tokens or 0):
            return 0
        return remaining


def _unsupported(settings: ModelSettings, rules: ClaudeRules) -> Iterator[str]:
    """Yield the problems of settings that the model does not support."""
    yield from _unsupported_sampling(settings, rules)
    yield from _unsupported_thinking(settings, rules)
    if settings.effort not in (None, "none", *rules.efforts):
        problem = "this model does not support effort"
        if rules.efforts:
            problem = f"expected one of none, {', '.join(rules.efforts)}"
        yield f"effort={settings.effort!r}: {problem}"
    if settings.tool_choice not in (None, "auto", "none") and not rules.forced_tools:
        yield f"tool_choice={settings.tool_choice!r}: this model cannot be forced to call a tool; remove the setting"


def _unsupported_thinking(settings: ModelSettings, rules: ClaudeRules) -> Iterator[str]:
    if settings.thinking_tokens and not rules.thinking_budget:
        problem = "the model does not think"
        if rules.efforts:
            problem = "set effort instead"
        yield f"thinking_tokens={settings.thinking_tokens}: this model has no thinking budget: {problem}"
    if rules.no_thinking is None:
        for name, value in (("effort", settings.effort), ("thinking_tokens", settings.thinking_tokens)):
            if value in ("none", 0):
                yield f"{name}={value!r}: this model always thinks; remove the setting, or set effort='low'"


def _unsupported_sampling(settings: ModelSettings, rules: ClaudeRules) -> Iterator[str]:
    advice = "remove the setting, or send it with extra={...} if the model supports it now"
    if rules.sampling == "none":
        for name in ("temperature", "top_p", "top_k"):
            value = getattr(settings, name)
            if value is not None:
                yield f"{name}={value}: this model does not support it; {advice}"
    elif rules.sampling == "one" and settings.temperature is not None and settings.top_p is not None:
        yield (
            f"temperature={settings.temperature} and top_p={settings.top_p}: this model supports only one of them; "
            f"{advice}"
        )


def _conflicts(settings: ModelSettings) -> Iterator[str]:
    """Yield the problems of settings that the API refuses with a thinking budget."""
    budget = settings.thinking_tokens
    if not budget:
        return
    if settings.max_tokens is not None and settings.max_tokens <= budget:
        yield f"max_tokens={settings.max_tokens} must be more than thinking_tokens={budget}"
    if settings.top_p is not None and settings.top_p < _MIN_TOP_P:
        yield f"top_p={settings.top_p} must be at least {_MIN_TOP_P} with thinking_tokens"
    for name, allowed in _WITH_BUDGET.items():
        value = getattr(settings, name)
        if value not in allowed:
            yield f"{name}={value!r} cannot be combined with thinking_tokens: remove it"
    if settings.effort == "none":
        yield "effort='none' cannot be combined with thinking_tokens: remove one of them"
