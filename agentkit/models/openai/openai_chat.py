"""Models of chat completions of OpenAI and compatible servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Unpack

from agentkit.models.abilities import media_of
from agentkit.models.http.endpoint import WITH_TEMPLATE, EndpointModel
from agentkit.models.http.endpoint_options import EndpointOptions
from agentkit.models.http.reply_reader import ReplyReader
from agentkit.models.http.warned_once import WarnedOnce
from agentkit.models.model_errors import CallAsTextWarning, ModelRequestError
from agentkit.models.openai.openai_models import OpenAIRules, openai_rules, refused_settings
from agentkit.models.provider_settings import OF_OTHERS
from agentkit.models.providers import provider_at
from agentkit.models.settings import Fields, ModelSettings
from agentkit_prompts.chat_templates.tool_calls.calls_at import written_call
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.write_openai_chat import Required

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from agentkit.models.model import OnDelta, Reply
    from agentkit_prompts.composition.composition import Composition


class OpenAIModel(EndpointModel):
    """A model of chat completions, requested through the official `openai` SDK.

    `api_key` and `base_url` default to OPENAI_API_KEY and OPENAI_BASE_URL, read at the first request. With a base URL
    and without a key a placeholder is sent, because local servers expect a key. `EndpointOptions` describes the other
    options.

    Fields of a reply that only its endpoint understands (thinking, signatures) are sent back to the same host with the
    next request, and never to another host; signed and encrypted fields only to the same model.

    Raises:
        ModelRequestError: `base_url` is not an http address.
        AgentDefinitionError: Names every setting that the endpoint, or the model of OpenAI, does not support.
    """

    path = "/chat/completions"
    noun = "chat completion"
    requests_usage = True

    def __init__(self, model: str, *, client: AsyncOpenAI | None = None, **options: Unpack[EndpointOptions]) -> None:
        super().__init__(model, client=client, **options)
        self._warned = WarnedOnce(model)

    def _fields(self) -> Fields:
        if self._clients.is_official:
            return self.provider.fields
        return OF_OTHERS

    @property
    def _rules(self) -> OpenAIRules | None:
        """The rules of a model of OpenAI; None for another endpoint, or an unknown model."""
        if self.provider.name != "openai" or not self._clients.is_official:
            return None
        return openai_rules(self.name)

    def _refused_settings(self, settings: ModelSettings) -> Iterator[str]:
        if (rules := self._rules) is not None:
            yield from refused_settings(settings, rules, is_chat=True)

    def _required(self) -> Required | None:
        """Return the entry that the endpoint requires also in messages of other models."""
        at_host = provider_at(self.host)
        if at_host is None:
            return None
        return at_host.required

    def _body(self, composition: Composition) -> dict[str, Any]:
        self._check_calls(composition)
        self._check_media(composition)
        body = {"model": self.name, **composition.to_openai(self.host, model=self.name, required=self._required())}
        choice = self._tool_choice(composition)
        if choice in ("auto", "none", "required"):
            body["tool_choice"] = choice
        elif choice is not None:
            body["tool_choice"] = {"type": "function", "function": {"name": choice}}
        if self.settings.parallel_tool_calls is not None and composition.tools:
            body["parallel_tool_calls"] = self.settings.parallel_tool_calls
        return body

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Send the composition and return the reply; see `EndpointModel.request`.

        A `CallAsTextWarning` is issued if the text of the reply is a call of a tool, which the endpoint has not read.
        """
        reply = await super().request(composition, on_delta=on_delta)
        if composition.tools and not reply.message.tool_calls:
            self._check_text(composition, reply.message.text)
        return reply

    def _check_text(self, composition: Composition, text: str) -> None:
        """Warn once if a text consists of calls of the tools of a request."""
        # Most replies name no tool: searching the names is faster than reading all formats.
        if not any(tool.name in text for tool in composition.tools):
            return
        call = written_call(text, {tool.name: tool.parameters for tool in composition.tools})
        if call is None:
            return
        format = ""
        if call.format:
            format = f" in the format {call.format}"
        self._warned.warn(
            CallAsTextWarning,
            f"the reply of {self.host} is a call of {call.tool} as text{format}: the server did not read it, so the "
            "tool is not called and the text is the answer; switch on the tool calls of the server (vLLM: "
            "--enable-auto-tool-choice --tool-call-parser NAME, SGLang: --tool-call-parser NAME, llama-server: "
            f"--jinja), or name a chat template, so that calls in text are read: {WITH_TEMPLATE}",
        )

    def _check_calls(self, composition: Composition) -> None:
        """Refuse tools if the model supports no tool calls in chat completions.

        Raises:
            ModelRequestError: Names the model class that supports tool calls.
        """
        rules = self._rules
        if not composition.tools or rules is None:
            return
        support = rules.chat
        if support == "no calls" or (support == "calls without effort" and self.settings.effort != "none"):
            advice = ""
            if support != "no calls":
                advice = ", or set effort='none'"
            raise ModelRequestError(
                f"this model calls tools only in the Responses API: use OpenAIResponsesModel({self.name!r}), "
                f"or the name 'responses:{self.name}'{advice}",
                model=self.name,
                host=self.host,
                name="tools",
            )

    def _check_media(self, composition: Composition) -> None:
        """Refuse media at an endpoint whose models read text only.

        Raises:
            ModelRequestError: Names the kinds of media.
        """
        at_host = provider_at(self.host)
        if at_host is None or at_host.reads_media or not (media := media_of(composition)):
            return
        kinds = ", ".join(dict.fromkeys([part.kind for part in media]))
        raise ModelRequestError(
            f"the models of this endpoint read text only, and the prompt contains {kinds}: remove the media, or send "
            "them to another model",
            model=self.name,
            host=self.host,
            name="media",
        )

    def _reader(self, composition: Composition) -> ReplyReader:
        return ReplyReader(Owner("openai", self.host, self.name))
