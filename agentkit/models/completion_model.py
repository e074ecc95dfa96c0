"""Models behind a raw-completion endpoint: any `/v1/completions`, with the chat template of the model in front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from agentkit.models.endpoint import EndpointModel, EndpointOptions
from agentkit.models.functionary import FunctionaryReply
from agentkit.models.harmony import HarmonyReply
from agentkit.models.openai_chat import usage_options, without_usage
from agentkit.models.reply_reader import ReplyReader
from agentkit.models.settings import Fields, ModelSettings
from agentkit.models.text_tool_calls import TextToolCalls
from agentkit_prompts.chat_templates.template_finder import GivenTemplate, find_chat_template
from agentkit_prompts.chat_templates.tool_calls.formats import FUNCTIONARY, HARMONY, checked_format
from agentkit_prompts.chat_templates.tool_calls.reply_text import Schemas
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.read_messages import REASONING

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from agentkit.models.model import Reply
    from agentkit.models.model_errors import ModelRequestError
    from agentkit_prompts.chat_templates.guard.break_tokens import Policy
    from agentkit_prompts.chat_templates.protocol import ChatTemplate
    from agentkit_prompts.composition.composition import Composition

__all__ = ["CompletionModel"]

_FIELDS: Fields = {name: name for name in ("temperature", "top_p", "top_k", "max_tokens", "stop", "seed")}
_MAX_TOKENS = 1024
_SAMPLING = ("temperature", "top_p", "top_k", "repetition_penalty")


class CompletionModel(EndpointModel):
    """Sends the text of a composition to a completions endpoint through the official `openai` SDK.

    `chat_template` writes the text: a template, the name of a registered one or of a model, a `ChatTemplateConfig`, a
    file, or the folder of a model. Without it the one that fits the model's name is taken. `control_tokens` is what
    happens to untrusted text that would form one of its control tokens (see `Composition.to_text`), and
    `template_kwargs` are what else the template reads, such as `enable_thinking`. The other options are those of
    `EndpointOptions`.

    Temperature, top_p, top_k, the repetition penalty and the stop words are those of the template where the settings do
    not have them. `max_tokens` is always sent, 1,024 when not given: endpoints stop after 16 without it. The schema of
    an output type is sent as `response_format`.

    Tool calls that the model writes into its text become tool calls of the reply, in the format that the template
    names as its `tool_call_format`, or in any there is where it names none; what is not well formed stays text, and so
    does what the model only thinks of calling.

    Raises:
        ModelRequestError: `base_url` is not an http address.
        AgentDefinitionError: Names every setting that completions do not have.
        ChatTemplateError: There is no such chat template, or none is known to fit the model; says which would.
    """

    path = "/completions"

    def __init__(
        self,
        model: str,
        chat_template: GivenTemplate | None = None,
        *,
        client: AsyncOpenAI | None = None,
        control_tokens: Policy = "escape",
        template_kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[EndpointOptions],
    ) -> None:
        template = find_chat_template(chat_template, model)
        self.chat_template: ChatTemplate = template
        self._format = checked_format(getattr(template, "tool_call_format", None))
        self._control_tokens: Policy = control_tokens
        self._template_kwargs = dict(template_kwargs or {})
        super().__init__(model, client=client, **options)

    def _fields(self) -> Fields:
        return _FIELDS

    def _set(self, settings: ModelSettings) -> None:
        super()._set(settings)
        template = self.chat_template
        own = {name: getattr(template, name, None) for name in _SAMPLING}
        defaults = {"max_tokens": _MAX_TOKENS, **own, "stop": list(template.stop_words or ()) or None}
        self._fixed = {**{name: value for name, value in defaults.items() if value is not None}, **self._fixed}

    def _body(self, composition: Composition) -> dict[str, Any]:
        text = composition.to_text(self.chat_template, control_tokens=self._control_tokens, **self._template_kwargs)
        body: dict[str, Any] = {"model": self.name, "prompt": clean(text)}
        if composition.output_schema is not None:
            schema = {"name": "answer", "schema": composition.output_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _stream_options(self) -> dict[str, Any]:
        return usage_options(self._clients, self.settings.extra)

    def _adapts(self, error: ModelRequestError) -> bool:
        return without_usage(self._clients, error)

    def _reader(self, composition: Composition) -> ReplyReader:
        return _CompletionReader({tool.name: tool.parameters for tool in composition.tools}, self._format)


class _CompletionReader(ReplyReader):
    """Reads completions: text instead of messages, and what the format of the model has in it beside text."""

    def __init__(self, schemas: Schemas, format: str | None) -> None:
        super().__init__()
        self._inside: TextToolCalls | HarmonyReply | FunctionaryReply | None = None
        if format == HARMONY:
            self._inside = HarmonyReply()
        elif format == FUNCTIONARY:
            self._inside = FunctionaryReply(schemas)
        elif schemas:
            self._inside = TextToolCalls(schemas, format)

    def _delta(self, choice: dict[str, Any]) -> object:
        return {"content": choice.get("text")}

    def _spoken(self, text: str, *, last: bool) -> str:
        if self._inside is None:
            return text
        text = self._inside.add(text)
        return text + self._inside.end() if last else text

    def reply(self, model: str) -> Reply:
        self.end()
        if self._inside is not None:
            for call in self._inside.calls:
                self._add_call({"id": call.id, "function": {"name": call.name, "arguments": call.arguments}})
            self._inside.calls.clear()
            if isinstance(self._inside, HarmonyReply) and (thought := self._inside.thinking):
                self._kept[REASONING[0]] = thought
        return super().reply(model)
