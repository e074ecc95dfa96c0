"""Models behind a chat-completions endpoint: OpenAI, and every server that speaks its protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit.models.endpoint import OFFICIAL, EndpointModel, host_of
from agentkit.models.prices import Price
from agentkit.models.reply_reader import ReplyReader
from agentkit.models.settings import NO_SETTINGS, Fields, ModelSettings, by_request

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from agentkit_prompts.composition.composition import Composition

__all__ = ["OpenAIModel"]

_FIELDS: Fields = {
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "seed": "seed",
    "effort": "reasoning_effort",
    "tool_choice": by_request,
    "parallel_tool_calls": by_request,
    "prompt_cache_key": "prompt_cache_key",
    "service_tier": "service_tier",
}
_OF_OPENAI: Fields = {**_FIELDS, "max_tokens": "max_completion_tokens"}
_OF_OTHERS: Fields = {**_FIELDS, "max_tokens": "max_tokens", "top_k": "top_k"}
"""The newest name of a limit where it is required, the oldest everywhere else."""


class OpenAIModel(EndpointModel):
    """Talks to a chat-completions endpoint through the official `openai` SDK.

    `api_key` and `base_url` fall back to OPENAI_API_KEY and OPENAI_BASE_URL, read at the first request. With a base
    URL and no key a placeholder is sent, as local servers want it. `client` takes a ready `AsyncOpenAI` instead, which
    stays yours to close, and to use from one event loop only; otherwise each event loop gets a client of its own,
    closed when the loop ends, or by `aclose`.

    `settings` are sent where they are given. `max_retries` counts the further attempts after a 408, 409, 429 or 5xx,
    or a connection that failed; a stream that has begun is never tried again.

    `price` is what `Limits(money=)` and `result.cost` count with; without one it is that of `prices.json`, where the
    provider itself is asked.

    What a reply holds that only its endpoint understands (what the model thought, signatures) goes back to the same
    host with the next request, and to no other.

    Raises:
        ModelRequestError: `base_url` is not an http address.
        AgentDefinitionError: Names every setting that the endpoint does not have.
    """

    path = "/chat/completions"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: AsyncOpenAI | None = None,
        settings: ModelSettings = NO_SETTINGS,
        max_retries: int = 2,
        price: Price | None = None,
    ) -> None:
        super().__init__(
            model,
            api_key=api_key,
            base_url=base_url,
            client=client,
            max_retries=max_retries,
            price=price,
            settings=settings,
        )

    def _fields(self) -> Fields:
        return _OF_OPENAI if self.host == host_of(OFFICIAL) else _OF_OTHERS

    def _body(self, composition: Composition) -> dict[str, object]:
        body: dict[str, object] = {"model": self.name, **composition.to_openai(self.host)}
        choice = self._tool_choice(composition)
        if choice is not None:
            named = {"type": "function", "function": {"name": choice}}
            body["tool_choice"] = choice if choice in ("auto", "none", "required") else named
        if self.settings.parallel_tool_calls is not None and composition.tools:
            body["parallel_tool_calls"] = self.settings.parallel_tool_calls
        return body

    def _reader(self, composition: Composition) -> ReplyReader:
        return ReplyReader(self.host)
