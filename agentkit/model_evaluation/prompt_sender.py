"""How a model is asked for one prompt of an evaluation: by messages, by plain text, or to score a text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

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
from agentkit_prompts.evaluation.meta.chat_messages import chat_messages, to_messages
from agentkit_prompts.evaluation.meta.meta_base import MetaParser
from agentkit_prompts.evaluation.meta.meta_template import MetaTemplate
from agentkit_prompts.tree.layers import Layers

__all__ = ["MetaTemplateLike", "PromptSender", "TextModel"]

MetaTemplateLike: TypeAlias = MetaParser | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A meta template, or the configuration of one."""

_LAYERS = Layers()
_NO_INPUT = UserInput("")
_MAX_KNOWN = 256
_NOT_OFFLINE = (
    ". `offline` scores nothing: name a server of completions, as in --model http://localhost:8000/v1#NAME, with it"
)


@runtime_checkable
class TextModel(Protocol):
    """A model that takes plain text, such as a `CompletionModel`."""

    chat_template: ChatTemplate

    @property
    def stop_words(self) -> Sequence[str]:
        """What ends its replies."""
        ...

    async def complete(self, text: str) -> Reply:
        """Send a text as it is, and return how the model goes on."""
        ...

    async def score(self, text: str) -> TextScore:
        """Return how likely the model finds each token of a text."""
        ...


class PromptSender:
    """Asks one model for the prompts of one evaluation.

    Args:
        icl: The evaluation.
        model: The model.
        meta: How the prompts are written for it, where that is not left to the model.
        settings: How it is to answer, in the place of what the inferencer says.

    Raises:
        InContextError: The model cannot be asked like that.
        AgentDefinitionError: It cannot do one of the settings.
    """

    def __init__(self, icl: InContext, model: Model, meta: MetaTemplateLike | None, settings: ModelSettings) -> None:
        self.icl = icl
        self.inferencer = icl.inferencer
        if self.inferencer.name not in ASKED:
            raise InContextError(
                f"{self.inferencer.name} is built here and not run; run are {', '.join(ASKED)}. "
                "`InContext.prompts` are its prompts",
                name="inferencer",
                value=self.inferencer.name,
            )
        self._scores = self.inferencer.asks in ("ppl", "ll")
        if self._scores and (unused := _reply_settings(settings)):
            pronoun = "them"
            if len(unused) == 1:
                pronoun = "it"
            raise InContextError(
                f"settings: {', '.join(unused)}: {self.inferencer.name} scores texts and generates nothing; leave "
                f"{pronoun} out",
                name="settings",
                value=", ".join(unused),
            )
        self._template = _template(model, meta, self.inferencer)
        self.is_text = not isinstance(self._template, ApiMetaTemplate)
        self.settings = _without_sampling(
            _inferencer_settings(self.inferencer, model, self._template).merged(settings), icl, model
        )
        self.model = model
        if self.settings != NO_SETTINGS:
            self.model = with_settings(model, self.settings)
        self._turns: dict[int, Model] = {}
        self._known: dict[tuple[tuple[str, str, int], ...], Conversation] = {}

    @property
    def sent_settings(self) -> ModelSettings:
        """How the model is to answer, those settings included that it was made with."""
        sent = getattr(self.model, "settings", None)
        if not isinstance(sent, ModelSettings):
            sent = self.settings
        if self._scores:
            sent = ModelSettings(extra=sent.extra)
        return sent

    @property
    def shown_settings(self) -> str:
        """How the model is to answer, for people: its settings, and what its chat template and its kind bring."""
        template = None
        if isinstance(self.model, TextModel):
            template = self.model.chat_template
        own = {name: getattr(template, name, None) for name in ("temperature", "top_p", "top_k", "repetition_penalty")}
        sent = self.sent_settings
        shown = []
        if sent != NO_SETTINGS:
            shown.append(repr(sent).removeprefix("ModelSettings(").removesuffix(")"))
        if self._scores:
            return ", ".join(["log probabilities of texts; of each one token is written and not read", *shown])
        shown += [
            f"{name}={value!r} (chat template)"
            for name, value in own.items()
            if value is not None and getattr(sent, name, sent.extra.get(name)) is None
        ]
        most = getattr(self.model, "default_max_tokens", None)
        if most is not None and sent.max_tokens is None and "max_tokens" not in sent.extra:
            shown.append(f"max_tokens={most} (default)")
        if sent.temperature is None and own["temperature"] is None:
            shown.append("temperature as its endpoint has it")
        return ", ".join(shown) or "no settings"

    def write(self, prompt: Any) -> Any:
        """Return what is sent for a prompt: text, or messages as dicts with role and content."""
        if self.is_text:
            return self.icl.written(prompt, self._template)
        return chat_messages(self.icl.written(prompt, self._template))

    def shown(self, prompt: Any) -> Any:
        """Return what the endpoint reads of a prompt: text, with its chat template where there is one, or messages."""
        sent = self.write(prompt)
        if self.is_text or self._prompt is None:
            return sent
        return self._prompt(self._composition(sent))

    @property
    def _prompt(self) -> Callable[[Composition], str] | None:
        """What writes messages as the text of a local model; None where the endpoint takes messages."""
        if not isinstance(self.model, TextModel):
            return None
        return getattr(self.model, "prompt", None)

    @property
    def template_digest(self) -> str | None:
        """What tells one chat template around the messages from another; None where the endpoint has its own."""
        if self.is_text or self._prompt is None:
            return None
        roles = ("system", "user", "assistant", "user")
        # Some templates have no place for a system message.
        for talk in (roles, roles[1:]):
            with suppress(ChatTemplateError):
                text = self._prompt(self._composition([{"role": role, "content": role} for role in talk]))
                return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return None

    async def ask(self, sent: Any, turn: int) -> Reply:
        """Return the reply to what `write` returned."""
        model = self._model_of_turn(turn)
        if self.is_text:
            return await cast(TextModel, model).complete(sent)
        return await model.request(self._composition(sent))

    async def score(self, text: str) -> TextScore:
        """Return how likely the model finds a text."""
        return await cast(TextModel, self.model).score(text)

    def _composition(self, messages: Sequence[Mapping[str, Any]]) -> Composition:
        """Return the messages as every model takes them: the last of a user as its input, those before as history."""
        last, read = messages[-1], self._history(messages[:-1])
        content = last["content"]
        if last["role"] == "user" and content and len(last) == 2:
            if not isinstance(content, str):
                content = list(to_messages([last])[0].parts)
            return compose(_LAYERS, PromptContext(user_input=UserInput(content), conversation=read))
        return compose(_LAYERS, PromptContext(user_input=_NO_INPUT, conversation=[*read, *to_messages([last])]))

    def _history(self, messages: Sequence[Mapping[str, Any]]) -> Conversation:
        """Return messages as a conversation; worked examples are the same for many rows."""
        key = tuple([(message["role"], message["content"], len(message)) for message in messages])
        try:
            found = self._known.get(key)
        except TypeError:
            # Messages with media have no hash, and are not repeated.
            return Conversation(to_messages(messages))
        if found is None:
            found = Conversation(to_messages(messages))
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            if all(size == 2 for *_, size in key):
                self._known[key] = found
        return found

    def _model_of_turn(self, turn: int) -> Model:
        """Return the model with the length that an answer of a turn may have."""
        lengths = self.inferencer.max_out_len
        if not isinstance(lengths, list | tuple):
            return self.model
        if turn not in self._turns:
            length = lengths[min(turn, len(lengths) - 1)]
            self._turns[turn] = with_settings(self.model, ModelSettings(max_tokens=length))
        return self._turns[turn]


def _template(model: Model, meta: MetaTemplateLike | None, inferencer: Inferencer) -> MetaParser | ChatTemplate:
    """Return what writes the prompts, and refuse a model that cannot take what it writes."""
    is_text = isinstance(model, TextModel)
    scores = inferencer.asks in ("ppl", "ll")
    if scores and not callable(getattr(model, "score", None)):
        raise _no_score_error(inferencer, model)
    if meta is None:
        return _default_template(model, takes_text=is_text or scores, scores=scores)
    template = _checked_template(meta, takes_text=is_text or scores)
    if isinstance(template, ApiMetaTemplate) and scores:
        text = f"{inferencer.name} scores texts: give a MetaTemplate, which writes one"
        raise InContextError(text, name="meta_template", value="ApiMetaTemplate")
    if isinstance(template, MetaTemplate) and not is_text and not scores:
        raise InContextError(
            f"a MetaTemplate writes text, and the model {model.name!r} ({type(model).__name__}) takes messages: "
            "give an ApiMetaTemplate, or a CompletionModel",
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
        f"({type(model).__name__}) gives none: take a CompletionModel whose endpoint knows `echo` and "
        f"`logprobs`; on the command line, --chat-template NAME, or `base`{advice}",
        name="model",
        value=model.name,
    )


def _default_template(model: Model, *, takes_text: bool, scores: bool) -> MetaParser | ChatTemplate:
    """Return what writes the prompts for a model without a meta template."""
    if not takes_text:
        return ApiMetaTemplate(CHAT_META)
    template: Any = getattr(model, "chat_template", None)
    if template is None or getattr(template, "capability", "chat") == "completion":
        return MetaTemplate()
    # Scoring needs the whole text; for a reply the messages are enough, and the model writes them.
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
        f"{type(meta).__name__}; the chat template of a local model is given to CompletionModel",
        name="meta_template",
        value=type(meta).__name__,
    )


def _reply_settings(settings: ModelSettings) -> list[str]:
    """Return what settings choose for a reply, as `name=value`."""
    about_the_request = ("headers", "timeout", "extra")
    return [f"{name}={value!r}" for name, value in explicit_settings(settings).items() if name not in about_the_request]


def _without_sampling(settings: ModelSettings, icl: InContext, model: Model) -> ModelSettings:
    """Return settings without sampling for a model of plain text whose sampling nobody chose, as the suites have it."""
    chosen = (settings, getattr(model, "settings", NO_SETTINGS))
    names = ("temperature", "top_p", "top_k")
    is_chosen = any(getattr(one, name, None) is not None for one in chosen for name in names)
    is_chosen = is_chosen or icl.inferencer.generation_kwargs.get("do_sample") is True
    takes_text = isinstance(model, TextModel) and callable(getattr(model, "with_settings", None))
    if is_chosen or not takes_text or icl.inferencer.asks in ("ppl", "ll"):
        return settings
    return replace(settings, temperature=0.0)


def _inferencer_settings(inferencer: Inferencer, model: Model, template: MetaParser | ChatTemplate) -> ModelSettings:
    """Return how the model is to answer, as inferencer and meta template ask for."""
    if inferencer.asks in ("ppl", "ll"):
        return NO_SETTINGS
    sampling = dict(inferencer.generation_kwargs)
    if sampling.pop("do_sample", True) is False:
        sampling["temperature"] = 0.0
    # A list has a length for each turn, and each turn sets its own.
    if isinstance(inferencer.max_out_len, int):
        sampling["max_tokens"] = inferencer.max_out_len
    extra: dict[str, Any] = {}
    if inferencer.min_out_len is not None:
        extra["min_tokens"] = inferencer.min_out_len
    stop = [*inferencer.stopping_criteria]
    if isinstance(template, MetaParser):
        ends = _as_tuple(template.eos_token_id)
        stop += getattr(template, "stop_words", None) or [end for end in ends if isinstance(end, str)]
        if ids := [end for end in ends if isinstance(end, int)]:
            extra["stop_token_ids"] = ids
    if stop:
        # Settings replace the stop words of the model, so its own are repeated.
        own = getattr(model, "stop_words", None) or getattr(getattr(model, "settings", None), "stop", None)
        stop = [*dict.fromkeys((*stop, *_as_tuple(own)))]
    return ModelSettings(stop=stop or None, extra=extra, **sampling)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """Return one value, several or none as a tuple."""
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return tuple(value)
    return (value,)
