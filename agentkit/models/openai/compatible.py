"""`CompatibleModel`: a model of the chat-completions endpoint of a provider that is a row of `PROVIDERS`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack

from agentkit.models.http.endpoint_options import EndpointOptions
from agentkit.models.openai.openai_chat import OpenAIModel
from agentkit.models.provider import Provider
from agentkit.models.settings import Fields, ModelSettings, merged_body

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from agentkit_prompts.context.wire.write_openai_chat import Required


class CompatibleModel(OpenAIModel):
    """A model of the chat-completions endpoint of a provider, such as `model("groq:llama-3.3-70b-versatile")`.

    `provider` determines the address, the environment variables, the settings and the differences of the endpoint, also
    with another base URL, such as a proxy.
    """

    def __init__(
        self,
        provider: Provider,
        model: str,
        *,
        client: AsyncOpenAI | None = None,
        **options: Unpack[EndpointOptions],
    ) -> None:
        self.provider = provider
        self.output_modes = provider.output_modes
        super().__init__(model, client=client, **options)
        self._clients.requests_usage = provider.requests_usage

    def __repr__(self) -> str:
        return f"model({f'{self.provider.name}:{self.name}'!r}, host={self.host!r})"

    def _fields(self) -> Fields:
        return self.provider.fields

    def _refused_settings(self, settings: ModelSettings) -> Iterator[str]:
        names = [name for name in self.provider.exclusive if getattr(settings, name) is not None]
        if len(names) > 1:
            yield f"{names[0]}: it cannot be combined with {names[1]}: remove one of them"

    def _required(self) -> Required | None:
        return self.provider.required

    def _apply_settings(self, settings: ModelSettings) -> None:
        super()._apply_settings(settings)
        self._settings_body = merged_body(self.provider.body, self._settings_body, keep_none=True)
