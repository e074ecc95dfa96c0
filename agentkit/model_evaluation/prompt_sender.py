"""`PromptSender`: sends the prompts of an evaluation to a model: as messages, as text, or as text to score."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from agentkit.model_evaluation.media_hosts import MediaHosts
from agentkit.models.completion.text_score import TextScore
from agentkit.models.model import Model, Reply
from agentkit.models.offline.offline_model import OfflineModel
from agentkit.models.settings import NO_SETTINGS, ModelSettings, explicit_settings, with_settings
from agentkit_prompts.chat_templates.protocol import ChatTemplate
from agentkit_prompts.composition.compose import compose
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.errors import ChatTemplateError, InContextError
from agentkit_prompts.evaluation.in_context import InContext
from agentkit_prompts.evaluation.inferencer import ASKED, Inferencer
from agentkit_prompts.evaluation.meta.api_meta_template import CHAT_META, ApiMetaTemplate
from agentkit_prompts.evaluation.meta.chat_messages import MediaRoot, chat_messages, to_messages
from agentkit_prompts.evaluation.meta.meta_base import MetaParser
from agentkit_prompts.evaluation.meta.meta_template import MetaTemplate
from agentkit_prompts.tree.layers import Layers

MetaTemplateLike: TypeAlias = MetaParser | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A meta template, or its configuration."""

_LAYERS = Layers()
_NO_INPUT = UserInput("")
_MAX_CONVERSATIONS = 256
"""Maximum number of cached conversations."""
_SAMPLING = ("temperature", "top_p", "top_k")
_NOT_OFFLINE = (
    ". `offline` cannot score texts: pass a completions server too, such as --model http://localhost:8000/v1#NAME"
)


@runtime_checkable
class TextModel(Protocol):
    """A model that accepts plain text, such as a `CompletionModel`."""

    chat_template: ChatTemplate

    @property
    def stop_words(self) -> Sequence[str]:
        """Stop words of the replies."""
        ...

    async def complete(self, text: str) -> Reply:
        """Send a text without a chat template, and return the completion."""
        ...

    async def score(self, text: str) -> TextScore:
        """Return the log probability of each token of a text."""
        ...


class PromptSender:
    """Sends the prompts of one evaluation to one model.

    Args:
        icl: The evaluation.
        model: The model.
        meta: Meta template that writes the prompts; None for the default of the model.
        settings: Settings that replace the settings of the inferencer.
        root: Folder of the files of media, as for `to_messages`.
        allow_media: As for `to_messages`.

    Raises:
        InContextError: The model does not support the inferencer or the meta template.
        AgentDefinitionError: The model does not support a setting.
    """

    def __init__(
        self,
        icl: InContext,
        model: Model,
        meta: MetaTemplateLike | None,
        settings: ModelSettings,
        *,
        root: MediaRoot = None,
        allow_media: bool = False,
    ) -> None:
        self.icl = icl
        self._to_messages = partial(to_messages, root=root, allow_media=allow_media)
        self._hosts: MediaHosts | None = None
        if not allow_media:
            self._hosts = MediaHosts()
        self.inferencer = icl.inferencer
        if self.inferencer.name not in ASKED:
            raise InContextError(
                f"{self.inferencer.name} builds prompts only; inferencers that can run: {', '.join(ASKED)}. "
                "`InContext.prompts` returns the prompts",
                name="inferencer",
                value=self.inferencer.name,
            )
        self._scores = self.inferencer.asks in ("ppl", "ll")
        if self._scores and (unused := ", ".join(_reply_settings(settings))):
            raise InContextError(
                f"settings: {self.inferencer.name} scores texts and generates nothing; remove {unused}",
                name="settings",
                value=unused,
            )
        self._template = _template(model, meta, self.inferencer)
        self.is_text = not isinstance(self._template, ApiMetaTemplate)
        self.settings = _without_sampling(
            _inferencer_settings(self.inferencer, model, self._template).merged(settings), icl, model
        )
        self.model = model
        if self.settings != NO_SETTINGS:
            self.model = with_settings(model, self.settings)
        self._models: dict[int, Model] = {}
        """Models with the maximum length of a turn, by turn."""
        self._conversations: dict[tuple[tuple[str, str, int], ...], Conversation] = {}

    @property
    def sent_settings(self) -> ModelSettings:
        """Settings of the requests, including the settings of the model."""
        settings = getattr(self.model, "settings", None)
        if not isinstance(settings, ModelSettings):
            settings = self.settings
        if self._scores:
            return ModelSettings(extra=settings.extra)
        return settings

    @property
    def shown_settings(self) -> str:
        """Settings of the requests as text: the settings of the model, its chat template and its defaults."""
        settings = self.sent_settings
        parts: list[str] = []
        if settings != NO_SETTINGS:
            parts.append(repr(settings).removeprefix("ModelSettings(").removesuffix(")"))
        if self._scores:
            return ", ".join(["log probabilities of texts; one token per text is generated and ignored", *parts])
        of_template = self._template_settings()
        parts += [
            f"{name}={value!r} (chat template)"
            for name, value in of_template.items()
            if getattr(settings, name, settings.extra.get(name)) is None
        ]
        default = getattr(self.model, "default_max_tokens", None)
        if default is not None and settings.max_tokens is None and "max_tokens" not in settings.extra:
            parts.append(f"max_tokens={default} (default)")
        if settings.temperature is None and "temperature" not in of_template:
            parts.append("temperature of the endpoint")
        return ", ".join(parts)

    def _template_settings(self) -> dict[str, Any]:
        """Return the sampling settings of the chat template."""
        if not isinstance(self.model, TextModel):
            return {}
        values = {name: getattr(self.model.chat_template, name, None) for name in (*_SAMPLING, "repetition_penalty")}
        return {name: value for name, value in values.items() if value is not None}

    def write(self, prompt: Any) -> Any:
        """Return the content of a request: text, or messages as dicts with role and content."""
        if self.is_text:
            return self.icl.written(prompt, self._template)
        return chat_messages(self.icl.written(prompt, self._template))

    def shown(self, prompt: Any) -> Any:
        """Return the content that the endpoint receives: text, written by the chat template if any, or messages."""
        content = self.write(prompt)
        if self.is_text or self._prompt is None:
            return content
        return self._prompt(self._composition(content))

    @property
    def _prompt(self) -> Callable[[Composition], str] | None:
        """Function that writes messages as text for a local model; None if the endpoint accepts messages."""
        if not isinstance(self.model, TextModel):
            return None
        return getattr(self.model, "prompt", None)

    @property
    def template_digest(self) -> str | None:
        """Digest of the chat template that writes the messages; None if the endpoint writes them itself."""
        if self.is_text or self._prompt is None:
            return None
        roles = ("system", "user", "assistant", "user")
        # Some templates refuse a system message.
        for conversation in (roles, roles[1:]):
            with suppress(ChatTemplateError):
                text = self._prompt(self._composition([{"role": role, "content": role} for role in conversation]))
                return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return None

    async def request(self, content: Any, turn: int) -> Reply:
        """Send the content that `write` returned, and return the reply."""
        model = self._model_of_turn(turn)
        if self.is_text:
            return await cast(TextModel, model).complete(content)
        composition = self._composition(content)
        if self._hosts is not None:
            await self._hosts.check(composition.messages)
        return await model.request(composition)

    async def score(self, text: str) -> TextScore:
        """Return the log probabilities of a text."""
        return await cast(TextModel, self.model).score(text)

    def _composition(self, messages: Sequence[Mapping[str, Any]]) -> Composition:
        """Return messages as a composition; if the last message is from the user, it is the input."""
        last, history = messages[-1], self._history(messages[:-1])
        content = last["content"]
        if last["role"] == "user" and content and len(last) == 2:
            if not isinstance(content, str):
                content = list(self._to_messages([last])[0].parts)
            return compose(_LAYERS, PromptContext(user_input=UserInput(content), conversation=history))
        return compose(
            _LAYERS, PromptContext(user_input=_NO_INPUT, conversation=[*history, *self._to_messages([last])])
        )

    def _history(self, messages: Sequence[Mapping[str, Any]]) -> Conversation:
        """Return messages as a conversation, cached because many rows have the same worked examples."""
        key = tuple([(message["role"], message["content"], len(message)) for message in messages])
        try:
            conversation = self._conversations.get(key)
        except TypeError:
            # Messages with media cannot be hashed and are not repeated.
            return Conversation(self._to_messages(messages))
        if conversation is None:
            conversation = Conversation(self._to_messages(messages))
            if len(self._conversations) >= _MAX_CONVERSATIONS:
                self._conversations.clear()
            # Messages with more fields than role and content are not cached: the key does not contain these fields.
            if all(size == 2 for *_, size in key):
                self._conversations[key] = conversation
        return conversation

    def _model_of_turn(self, turn: int) -> Model:
        """Return the model with the maximum length of the answer of a turn."""
        lengths = self.inferencer.max_out_len
        if not isinstance(lengths, list | tuple):
            return self.model
        if turn not in self._models:
            length = lengths[min(turn, len(lengths) - 1)]
            self._models[turn] = with_settings(self.model, ModelSettings(max_tokens=length))
        return self._models[turn]


def _template(model: Model, meta: MetaTemplateLike | None, inferencer: Inferencer) -> MetaParser | ChatTemplate:
    """Return the template that writes the prompts.

    Raises:
        InContextError: The model does not accept the prompts of the template.
    """
    is_text = isinstance(model, TextModel)
    scores = inferencer.asks in ("ppl", "ll")
    if scores and not callable(getattr(model, "score", None)):
        raise _no_score_error(inferencer, model)
    if meta is None:
        return _default_template(model, takes_text=is_text or scores, scores=scores)
    template = _checked_template(meta, takes_text=is_text or scores)
    if isinstance(template, ApiMetaTemplate) and scores:
        text = f"{inferencer.name} scores texts: pass a MetaTemplate, which writes text"
        raise InContextError(text, name="meta_template", value="ApiMetaTemplate")
    if isinstance(template, MetaTemplate) and not is_text and not scores:
        raise InContextError(
            f"a MetaTemplate writes text, and the model {model.name!r} ({type(model).__name__}) accepts messages: "
            "pass an ApiMetaTemplate, or a CompletionModel",
            name="meta_template",
            value="MetaTemplate",
        )
    return template


def _no_score_error(inferencer: Inferencer, model: Model) -> InContextError:
    advice = ""
    if isinstance(model, OfflineModel):
        advice = _NOT_OFFLINE
    return InContextError(
        f"{inferencer.name} scores texts by their log probabilities, and the model {model.name!r} "
        f"({type(model).__name__}) returns none: use a CompletionModel whose endpoint supports `echo` and "
        f"`logprobs`; on the command line, --chat-template NAME, or `base`{advice}",
        name="model",
        value=model.name,
    )


def _default_template(model: Model, *, takes_text: bool, scores: bool) -> MetaParser | ChatTemplate:
    """Return the template that writes the prompts without a meta template."""
    if not takes_text:
        return ApiMetaTemplate(CHAT_META)
    template: Any = getattr(model, "chat_template", None)
    if template is None or getattr(template, "capability", "chat") == "completion":
        return MetaTemplate()
    # A score needs the whole text; for a reply, the model writes the messages as text.
    if scores:
        return cast("ChatTemplate", template)
    return ApiMetaTemplate(CHAT_META)


def _checked_template(meta: MetaTemplateLike, *, takes_text: bool) -> MetaParser:
    if isinstance(meta, MetaParser):
        return meta
    if isinstance(meta, Mapping) and takes_text:
        return MetaTemplate(meta)
    if isinstance(meta, Mapping | list | tuple):
        return ApiMetaTemplate(meta)
    raise InContextError(
        f"meta_template: expected the dict of a meta template, MetaTemplate or ApiMetaTemplate, got "
        f"{type(meta).__name__}; pass the chat template of a local model to CompletionModel",
        name="meta_template",
        value=type(meta).__name__,
    )


def _reply_settings(settings: ModelSettings) -> list[str]:
    """Return the settings that only affect a generated reply, as `name=value`."""
    excluded = ("headers", "timeout", "extra")
    return [f"{name}={value!r}" for name, value in explicit_settings(settings).items() if name not in excluded]


def _without_sampling(settings: ModelSettings, icl: InContext, model: Model) -> ModelSettings:
    """Return settings with temperature 0 for a model that accepts text, unless sampling is configured.

    OpenCompass and AISBench also decode greedily without sampling settings.
    """
    accepts_text = isinstance(model, TextModel) and callable(getattr(model, "with_settings", None))
    if not accepts_text or icl.inferencer.asks in ("ppl", "ll"):
        return settings
    if icl.inferencer.generation_kwargs.get("do_sample") is True:
        return settings
    for source in (settings, getattr(model, "settings", NO_SETTINGS)):
        if any(getattr(source, name, None) is not None for name in _SAMPLING):
            return settings
    return replace(settings, temperature=0.0)


def _inferencer_settings(inferencer: Inferencer, model: Model, template: MetaParser | ChatTemplate) -> ModelSettings:
    """Return the settings of the inferencer and the meta template."""
    if inferencer.asks in ("ppl", "ll"):
        return NO_SETTINGS
    values = dict(inferencer.generation_kwargs)
    if values.pop("do_sample", True) is False:
        values["temperature"] = 0.0
    # `_model_of_turn` applies a list, which contains a length for each turn.
    if isinstance(inferencer.max_out_len, int):
        values["max_tokens"] = inferencer.max_out_len
    extra: dict[str, Any] = {}
    if inferencer.min_out_len is not None:
        extra["min_tokens"] = inferencer.min_out_len
    stop = [*inferencer.stopping_criteria]
    if isinstance(template, MetaParser):
        stop_words, ids = _ends(template)
        stop += stop_words
        if ids:
            extra["stop_token_ids"] = ids
    if stop:
        # The setting replaces the stop words of the model, so that it must contain them.
        stop = [*dict.fromkeys((*stop, *_stop_words(model)))]
    return ModelSettings(stop=stop or None, extra=extra, **values)


def _ends(template: MetaParser) -> tuple[list[str], list[int]]:
    """Return the stop words and the stop token ids of a meta template."""
    ends = _as_tuple(template.eos_token_id)
    stop_words = getattr(template, "stop_words", None) or [end for end in ends if isinstance(end, str)]
    return stop_words, [end for end in ends if isinstance(end, int)]


def _stop_words(model: Model) -> tuple[str, ...]:
    stop_words = getattr(model, "stop_words", None)
    return _as_tuple(stop_words or getattr(getattr(model, "settings", None), "stop", None))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """Return a value, a sequence or None as a tuple."""
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return tuple(value)
    return (value,)
