"""Models behind a chat-completions endpoint: OpenAI, and every server that speaks its protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agentkit.models.endpoint import OFFICIAL, EndpointModel, host_of
from agentkit.models.prices import Price
from agentkit.models.reply_reader import ReplyReader

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from pydantic import JsonValue

    from agentkit_prompts.composition.composition import Composition

__all__ = ["OpenAIModel"]


class OpenAIModel(EndpointModel):
    """Talks to a chat-completions endpoint through the official `openai` SDK.

    `api_key` and `base_url` fall back to OPENAI_API_KEY and OPENAI_BASE_URL, read at the first request. With a base
    URL and no key a placeholder is sent, as local servers want it. `client` takes a ready `AsyncOpenAI` instead, which
    stays yours to close, and to use from one event loop only; otherwise each event loop gets a client of its own,
    closed when the loop ends, or by `aclose`.

    `temperature`, `max_tokens`, `top_p`, `seed` and `stop` are sent when they are given; `extra` is merged over the
    request body last. `timeout` is how many seconds may pass without anything arriving. `max_retries` counts the
    further attempts after a 408, 409, 429 or 5xx, or a connection that failed; a stream that has begun is never tried
    again.

    `price` is what `Limits(money=)` and `result.cost` count with; without one it is that of `prices.json`, where the
    provider itself is asked.

    What a reply holds that only its endpoint understands (what the model thought, signatures) goes back to the same
    host with the next request, and to no other.

    Raises:
        ModelRequestError: `base_url` is not an http address.
    """

    path = "/chat/completions"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: AsyncOpenAI | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: str | Sequence[str] | None = None,
        extra: Mapping[str, JsonValue] | None = None,
        timeout: float = 600.0,
        max_retries: int = 2,
        price: Price | None = None,
    ) -> None:
        super().__init__(
            model,
            api_key=api_key,
            base_url=base_url,
            client=client,
            timeout=timeout,
            max_retries=max_retries,
            price=price,
        )
        self._max_tokens = max_tokens
        settings = {"temperature": temperature, "top_p": top_p, "seed": seed, "stop": stop}
        self._settings = {name: value for name, value in settings.items() if value is not None}
        self._extra = dict(extra or {})

    def _body(self, composition: Composition) -> dict[str, object]:
        body: dict[str, object] = {"model": self.name, **composition.to_openai(self.host), **self._settings}
        if self._max_tokens is not None:  # the newest name where it is required, the oldest everywhere else
            body["max_completion_tokens" if self.host == host_of(OFFICIAL) else "max_tokens"] = self._max_tokens
        return {**body, **self._extra}

    def _reader(self, composition: Composition) -> ReplyReader:
        return ReplyReader(self.host)
