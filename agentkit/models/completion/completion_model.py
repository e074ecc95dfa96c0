"""Models behind a raw-completion endpoint: any `/v1/completions`, with the chat template of the model in front."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from agentkit.errors import AgentDefinitionError
from agentkit.ground.unknown_options import check_names
from agentkit.models.completion.functionary import FunctionaryReply
from agentkit.models.completion.harmony import HarmonyReply
from agentkit.models.completion.leading_thoughts import LeadingThoughts
from agentkit.models.completion.text_score import EchoReader, TextScore
from agentkit.models.completion.text_tool_calls import TextToolCalls
from agentkit.models.http.endpoint import OF_SETTINGS, EndpointModel, EndpointOptions
from agentkit.models.http.reply_reader import IncompleteCall, ReplyReader
from agentkit.models.model import Delta
from agentkit.models.model_errors import ModelRequestError, ToolsTwiceWarning
from agentkit.models.settings import Fields, ModelSettings, merged_body
from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.chat_templates.normalise import template_message
from agentkit_prompts.chat_templates.reasoning_tags import opens_thought
from agentkit_prompts.chat_templates.template_finder import GivenTemplate, find_chat_template
from agentkit_prompts.chat_templates.tool_calls.formats import FUNCTIONARY, HARMONY, checked_format
from agentkit_prompts.chat_templates.tool_calls.reply_text import Schemas
from agentkit_prompts.composition.fit_budget import without_oldest
from agentkit_prompts.composition.targets.chat_text import text_tokens
from agentkit_prompts.composition.targets.tools_in_text import (
    calls_as_text,
    has_place_for_tools,
    shows_tools,
    with_written,
)
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.read_messages import REASONING
from agentkit_prompts.errors import ChatTemplateError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from agentkit.models.model import Reply
    from agentkit_prompts.chat_templates.guard.control_tokens import Policy
    from agentkit_prompts.chat_templates.protocol import ChatTemplate
    from agentkit_prompts.composition.composition import Composition
    from agentkit_prompts.composition.contents import Contents

__all__ = ["CompletionModel"]

_FIELDS: Fields = {name: name for name in ("temperature", "top_p", "top_k", "max_tokens", "stop", "seed")}
_OWN = ("chat_template", "client", "control_tokens", "template_kwargs", "session_len")
_MAX_TOKENS = 1024
_REPLY = "Qreply"
"""Stands for a reply that no template looks into."""
_OPENING = 8
"""Characters by which what opens a call is known again."""
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
    an output type is sent as `response_format`. `session_len` is how many tokens the server has for prompt and reply,
    by default that of the template: the oldest history is left out until both fit, see `fitted`.

    Tool calls that the model writes into its text become tool calls of the reply, in the format that the template
    names as its `tool_call_format`, or in any there is where it names none; what is not well formed stays text, and so
    does what the model only thinks of calling.

    Raises:
        ModelRequestError: `base_url` is not an http address.
        AgentDefinitionError: Names every setting that completions do not have; or `session_len` is no number of tokens.
        UnknownOption: Names all the options that there are not, and where what they are for is given.
        ChatTemplateError: There is no such chat template, or none is known to fit the model; says which would.
    """

    path = "/completions"
    requests_usage = True
    default_max_tokens = _MAX_TOKENS
    """Tokens of a reply where no setting says how many."""

    def __init__(
        self,
        model: str,
        chat_template: GivenTemplate | None = None,
        *,
        client: AsyncOpenAI | None = None,
        control_tokens: Policy = "escape",
        template_kwargs: Mapping[str, Any] | None = None,
        session_len: int | None = None,
        **options: Unpack[EndpointOptions],
    ) -> None:
        check_names("CompletionModel", options, (*EndpointOptions.__annotations__, *_OWN), OF_SETTINGS)
        template = find_chat_template(chat_template, model)
        if session_len is not None and (type(session_len) is not int or session_len < 1):
            raise AgentDefinitionError(
                f"CompletionModel: session_len: expected a number of tokens, got {session_len!r}", name="session_len"
            )
        self.session_len: int | None = session_len or getattr(template, "session_len", None)
        """Tokens of prompt and reply together; None where that is not known."""
        self.chat_template: ChatTemplate = template
        self._warned: list[bool] = []
        """Whether it was warned of tools that are sent twice: shared by its copies with other settings."""
        self._format = checked_format(getattr(template, "tool_call_format", None))
        self.control_tokens: Policy = control_tokens
        """What happens to untrusted text that forms control tokens of the chat template."""
        self.template_kwargs: Mapping[str, Any] = dict(template_kwargs or {})
        """What else the chat template reads."""
        super().__init__(model, client=client, **options)

    @cached_property
    def has_place_for_tools(self) -> bool:
        """Whether the chat template writes tools; where it does not, a prompt has to show them."""
        return has_place_for_tools(self.chat_template, **self.template_kwargs)

    @property
    def stop_words(self) -> tuple[str, ...]:
        """What ends its replies: of its settings, as it was made with, or else of its chat template."""
        stop: Any = self._settings_body.get("stop", ())
        if isinstance(stop, str):
            return (stop,)
        return tuple(stop)

    def _fields(self) -> Fields:
        return _FIELDS

    def _apply_settings(self, settings: ModelSettings) -> None:
        super()._apply_settings(settings)
        template = self.chat_template
        # Settings replace what the configuration of the template proposes.
        own = {name: getattr(template, name, None) for name in _SAMPLING}
        defaults = {**own, "stop": list(template.stop_words or ()) or None}
        self._settings_body = {
            **{name: value for name, value in defaults.items() if value is not None},
            **self._settings_body,
        }

    def _body(self, composition: Composition) -> dict[str, Any]:
        composition = self.fitted(composition)
        body: dict[str, Any] = {"model": self.name, "prompt": self.prompt(composition), "max_tokens": _MAX_TOKENS}
        # The reply may use what the prompt leaves free.
        if self.session_len is not None:
            body["max_tokens"] = min(_MAX_TOKENS, self.session_len - composition.tokens)
        if composition.output_schema is not None:
            schema = {"name": "answer", "schema": composition.output_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def prompt(self, composition: Composition) -> str:
        """Return the text that is sent for a composition that is `fitted`. Raises like `Composition.to_text`."""
        return clean(
            composition.to_text(self.chat_template, control_tokens=self.control_tokens, **self.template_kwargs)
        )

    def fitted(self, composition: Composition) -> Composition:
        """Return what of a composition is sent: what fits into the `session_len` beside a reply.

        Of the history the oldest turns are left out, as far as that is needed. What counts is the text that the chat
        template writes, as the tokenizer of the composition counts it: without one that is an estimate. Tools that
        only a prompt shows are not declared, and so not counted, beside it.

        Raises:
            ModelRequestError: It does not fit without any history either.
        """
        if composition.tools and shows_tools(composition.layers):
            if not self.has_place_for_tools:
                composition = composition.without_tools()
            elif not self._warned:
                self._warned.append(True)
                warn(
                    f"model {self.name!r}: its chat template has a place for tools, and a ToolPrompt shows them too, "
                    "so they are sent twice; leave that prompt out for this model",
                    ToolsTwiceWarning,
                )
        most = self.session_len
        composition = composition.written_by(self.text_tokens)
        if most is None:
            return composition
        limit = most - (self._settings_body.get("max_tokens") or min(_MAX_TOKENS, most // 4))
        composition = without_oldest(composition, limit, f"session_len is {most}")
        if composition.tokens > limit:
            raise ModelRequestError(
                f"the prompt needs about {composition.tokens} tokens without any history, and session_len "
                f"{most} leaves {max(limit, 0)} beside the reply: send less, allow fewer max_tokens, or give the "
                "session_len that the server has",
                model=self.name,
                host=self.host,
                name="session_len",
                value=most,
            )
        return composition

    def text_tokens(self, composition: Contents) -> int:
        """Return how many tokens the text has that is sent for a composition, as the tokenizer of it counts."""
        return text_tokens(composition, self.chat_template, control_tokens=self.control_tokens, **self.template_kwargs)

    async def complete(self, text: str) -> Reply:
        """Send a text as it is, without the chat template and its guard, and return how the model goes on.

        Raises:
            ModelError: There is no reply; see `request`.
        """
        body = {"model": self.name, "prompt": clean(text), "max_tokens": _MAX_TOKENS}
        reader = await self._send(merged_body(body, self._settings_body), lambda: _CompletionReader({}, None))
        return reader.reply(self.name)

    async def score(self, text: str) -> TextScore:
        """Return how likely the model finds each token of a text, sent as it is: `echo` and `logprobs`.

        Raises:
            ModelReplyError: The endpoint sends no log probabilities of a prompt.
            ModelError: There is no reply; see `request`.
        """
        body = {"model": self.name, "prompt": text, "echo": True, "logprobs": 1, "temperature": 0.0, "max_tokens": 1}
        # A sampling setting must not change what is scored.
        asked = merged_body(body, self.settings.extra)
        reader = await self._send(asked, lambda: EchoReader(text, self.name, self.host))
        found = reader.score()
        return TextScore(found.tokens, found.log_probabilities, reader.usage)

    def _reader(self, composition: Composition) -> ReplyReader:
        is_shown = shows_tools(composition.layers)
        # A prompt that shows the tools says how they are called, and any form that there is is recognised.
        is_free = self._format != HARMONY and is_shown
        tools = (*composition.context.tools, *composition.tools) if is_shown else composition.tools
        schemas = {tool.name: tool.parameters for tool in tools}
        keeps_text = is_shown and not self.has_place_for_tools
        return _CompletionReader(
            schemas,
            None if is_free else self._format,
            self._space_before,
            opening=self._space_of_reply,
            keeps_text=keeps_text,
            leading=LeadingThoughts(is_open=self._opens_thought),
        )

    @cached_property
    def _opens_thought(self) -> bool:
        """Whether the chat template opens a thought, which the model goes on with."""
        try:
            return opens_thought(self.chat_template.render([{"role": "user", "content": "a"}], **self.template_kwargs))
        except ChatTemplateError:
            return False

    @cached_property
    def _space_of_reply(self) -> str:
        """The white space that the next prompt has in front of a reply, and the prompt that asks for it has not."""
        asked = [{"role": "user", "content": "a"}]
        replied = [*asked, {"role": "assistant", "content": _REPLY}]
        try:
            before = self.chat_template.render(asked, **self.template_kwargs)
            after = self.chat_template.render(replied, None, False, **self.template_kwargs)
        except ChatTemplateError:
            return ""
        space = after[len(before) : after.find(_REPLY, len(before))]
        if after.startswith(before) and space.isspace():
            return space
        return ""

    def _space_before(self, text: str, call: ToolCall, opening: str) -> str:
        """Return the white space that the next prompt has between the text of a reply and what opens its call."""
        message = Message("assistant", text, (call,))
        for shown in (message, calls_as_text(message)):
            try:
                asked = [template_message(one) for one in (Message("user", "a"), shown)]
                written = self.chat_template.render(asked, None, False, **self.template_kwargs)
            except ChatTemplateError:
                # The template has no place for calls. The next form has them as text.
                continue
            # Only the last line is compared, because the template may leave out a thought before it.
            end = text.rpartition("\n")[2]
            found = re.search(rf"{re.escape(end)}(\s*+){re.escape(opening)}", written)
            if found is None:
                break
            return found[1]
        return ""


class _CompletionReader(ReplyReader):
    """Reads completions: text instead of messages, and what the format of the model has in it beside text."""

    def __init__(
        self,
        schemas: Schemas,
        format: str | None,
        space_before: Callable[[str, ToolCall, str], str] | None = None,
        *,
        opening: str = "",
        keeps_text: bool = False,
        leading: LeadingThoughts | None = None,
    ) -> None:
        super().__init__()
        self._leading = leading
        """Takes out the thoughts that the text begins with; None where they are as good as any text."""
        self._is_thought_cut = False
        """Whether the reply reached its limit of tokens inside a thought."""
        self._opening = opening
        """White space that the template writes in front of every reply."""
        self._space_before = space_before
        self._written: list[str] | None = [] if keeps_text else None
        """The text that calls are read from, where the next prompt has it as it is."""
        self._space: list[str] = []
        """White space at the end of the text, until it is known what follows."""
        self._inside: TextToolCalls | HarmonyReply | FunctionaryReply | None = None
        self._thoughts = [] if leading is None else leading.thoughts
        """The pieces of what was thought so far."""
        self._passed_on = 0
        """How many of these were passed on."""
        if format == HARMONY:
            self._inside = harmony = HarmonyReply()
            self._thoughts = harmony.thoughts
        elif format == FUNCTIONARY:
            self._inside = FunctionaryReply(schemas)
        elif schemas:
            self._inside = TextToolCalls(schemas, format)

    def _message_delta(self, choice: dict[str, Any]) -> object:
        text = choice.get("text")
        # The template writes the space before every reply, or the next prompt would have it twice.
        if self._opening and isinstance(text, str) and text:
            text, self._opening = text.removeprefix(self._opening), ""
        return {"content": text}

    def _visible(self, text: str, *, last: bool) -> str:
        if self._leading is not None:
            text = self._without_thoughts(self._leading, text, last=last)
        inside = self._inside
        if inside is None:
            return text
        if self._written is not None:
            self._written.append(text)
        text = inside.add(text)
        if isinstance(inside, TextToolCalls):
            if last:
                return self._last_text(inside, text)
            return self._without_space(text)
        if last:
            text += inside.end(at_limit=self._is_at_limit)
        return text

    @property
    def _is_at_limit(self) -> bool:
        return self.finish_reason == "length"

    def _without_thoughts(self, leading: LeadingThoughts, text: str, *, last: bool) -> str:
        text = leading.add(text)
        if last and self._is_at_limit and leading.is_open:
            self._is_thought_cut = True
        elif last:
            text += leading.end()
        return text

    def _last_text(self, inside: TextToolCalls, text: str) -> str:
        """Return the rest of the text, with the white space that was held back."""
        opening = inside.held.lstrip()[:_OPENING]
        text += inside.end(at_limit=self._is_at_limit)
        space = "".join(self._space)
        self._space.clear()
        if space and not text and opening and inside.calls and self._space_before is not None:
            # What the template writes before a call is not text, or the next prompt would have it twice.
            space = space.removesuffix(self._space_before(self.text, inside.calls[0], opening))
        return space + text

    def _without_space(self, text: str) -> str:
        """Return text without the white space at its end, which is held back."""
        bare = text.rstrip()
        if not bare:
            self._space.append(text)
            return ""
        shown = "".join([*self._space, bare])
        self._space = [text[len(bare) :]]
        return shown

    def _add_text(self, text: str, *, last: bool = False) -> list[Delta]:
        new = super()._add_text(text, last=last)
        if thought := "".join(self._thoughts[self._passed_on :]):
            new.insert(0, Delta(thought, "thinking"))
        self._passed_on = len(self._thoughts)
        if self._inside is not None:
            for call in self._inside.calls:
                new += self._add_call({"id": call.id, "function": {"name": call.name, "arguments": call.arguments}})
            self._inside.calls.clear()
        if text and not new:
            # All of it is held back. The empty delta is a sign of life.
            new = [Delta("")]
        return new

    def reply(self, model: str) -> Reply:
        self.end()
        if self._is_thought_cut:
            raise IncompleteCall("while the model was thinking")
        if self._inside is not None and self._inside.is_cut:
            raise IncompleteCall("inside a tool call")
        if thought := "".join(self._thoughts):
            self._unknown[REASONING[0]] = thought
        reply = super().reply(model)
        if self._written is None or not reply.message.tool_calls:
            return reply
        return replace(reply, message=with_written(reply.message, clean("".join(self._written))))
