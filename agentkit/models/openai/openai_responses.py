"""Models of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from agentkit.models.http.endpoint import EndpointModel
from agentkit.models.http.endpoint_options import EndpointOptions
from agentkit.models.openai.openai_models import openai_rules, refused_settings
from agentkit.models.openai.responses_reader import ResponsesReader
from agentkit.models.providers import PROVIDERS
from agentkit.models.settings import Fields, ModelSettings, set_per_request
from agentkit_prompts.context.wire.owner import Owner

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from agentkit_prompts.composition.composition import Composition


def _compaction(value: int) -> Mapping[str, Any]:
    return {"context_management": [{"type": "compaction", "compact_threshold": value}]}


_FIELDS: Fields = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
    "effort": lambda value: {"reasoning": {"effort": value}},
    "tool_choice": set_per_request,
    "parallel_tool_calls": set_per_request,
    "prompt_cache_key": "prompt_cache_key",
    "compact_above": _compaction,
    "service_tier": "service_tier",
}


class OpenAIResponsesModel(EndpointModel):
    """A model of OpenAI's Responses API or a compatible server, requested through the official `openai` SDK.

    `api_key` and `base_url` default to OPENAI_API_KEY and OPENAI_BASE_URL, read at the first request. `EndpointOptions`
    describes the other options.

    Each request contains the whole conversation, and the provider stores nothing: the reply contains encrypted
    reasoning, which is sent back to the same model at the same host with the next request. `extra={"store": True}`
    stores the conversation at the provider. With `compact_above` the reply contains an encrypted summary of a long
    conversation, which is sent back too. `extra={"reasoning": {"summary": "auto"}}` requests summaries of the
    reasoning.

    Raises:
        ModelRequestError: `base_url` is not an http address.
        AgentDefinitionError: Names every setting that the API, or the model of OpenAI, does not support.
    """

    provider = PROVIDERS["responses"]
    path = "/responses"
    noun = "response"

    def __init__(self, model: str, *, client: AsyncOpenAI | None = None, **options: Unpack[EndpointOptions]) -> None:
        super().__init__(model, client=client, **options)

    def _fields(self) -> Fields:
        return _FIELDS

    def _refused_settings(self, settings: ModelSettings) -> Iterator[str]:
        if self._clients.is_official and (rules := openai_rules(self.name)) is not None:
            yield from refused_settings(settings, rules, is_chat=False)

    def _body(self, composition: Composition) -> dict[str, Any]:
        payload = composition.to_responses(self.host, model=self.name)
        body: dict[str, Any] = {"model": self.name, "store": False, **payload}
        rules = None
        if self._clients.is_official:
            rules = openai_rules(self.name)
        # The API refuses the field for a model that cannot think.
        if rules is None or rules.reasons:
            body["include"] = ["reasoning.encrypted_content"]
        choice = self._tool_choice(composition)
        if choice in ("auto", "none", "required"):
            body["tool_choice"] = choice
        elif choice is not None:
            body["tool_choice"] = {"type": "function", "name": choice}
        if self.settings.parallel_tool_calls is not None and composition.tools:
            body["parallel_tool_calls"] = self.settings.parallel_tool_calls
        return body

    def _reader(self, composition: Composition) -> ResponsesReader:
        return ResponsesReader(Owner("responses", self.host, self.name))
