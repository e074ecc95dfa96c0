"""Models of Gemini and DeepSeek with their variants of chat completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentkit.models.abilities import OutputMode
from agentkit.models.http.sdk_clients import Sdk
from agentkit.models.openai.openai_chat import OpenAIModel
from agentkit.models.settings import Fields, ModelSettings, set_per_request

__all__ = ["DeepSeekModel", "GeminiModel"]

_COMMON: Fields = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "stop": "stop",
    "tool_choice": set_per_request,
}


def _budget(value: int) -> Mapping[str, Any]:
    return {"extra_body": {"google": {"thinking_config": {"thinking_budget": value}}}}


def _deepseek_effort(value: str) -> Mapping[str, Any]:
    if value == "none":
        return {"thinking": {"type": "disabled"}}
    return {"reasoning_effort": value}


class GeminiModel(OpenAIModel):
    """A model of Gemini, at its OpenAI-compatible endpoint. The key is in GEMINI_API_KEY, or `api_key`.

    Thought signatures are sent back with their tool calls. Tool calls of other models have no signature and are sent
    with the placeholder that Google documents.
    """

    sdk = Sdk("openai", "AsyncOpenAI", "GEMINI_API_KEY", "", "https://generativelanguage.googleapis.com/v1beta/openai")
    required = "thought_signature"

    def _fields(self) -> Fields:
        return {**_COMMON, "effort": "reasoning_effort", "thinking_tokens": _budget}

    def _refused_settings(self, settings: ModelSettings) -> Iterator[str]:
        if settings.effort is not None and settings.thinking_tokens is not None:
            yield "effort: it cannot be combined with thinking_tokens: remove one of them"


class DeepSeekModel(OpenAIModel):
    """A model of DeepSeek's endpoint. The key is in DEEPSEEK_API_KEY, or `api_key`.

    The thinking of the model is sent back as `reasoning_content`, which the endpoint requires in every reply. A reply
    of another model is sent with an empty `reasoning_content`.
    """

    sdk = Sdk("openai", "AsyncOpenAI", "DEEPSEEK_API_KEY", "", "https://api.deepseek.com")
    required = "reasoning_content"
    output_modes: tuple[OutputMode, ...] = ("tool", "prompted")

    def _fields(self) -> Fields:
        return {**_COMMON, "effort": _deepseek_effort}
