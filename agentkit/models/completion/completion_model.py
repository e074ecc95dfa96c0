"""Models of `/v1/completions`: the prompt is written by the chat template of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from agentkit.ground.unknown_options import check_names
from agentkit.models.completion.call_space import space_pattern
from agentkit.models.completion.completion_reader import CompletionReader
from agentkit.models.completion.leading_thoughts import LeadingThoughts
from agentkit.models.completion.reply_tokens import TOKEN_OPTIONS, ReplyTokens
from agentkit.models.completion.text_score import EchoReader, TextScore
from agentkit.models.http.endpoint import EndpointModel
from agentkit.models.http.endpoint_options import OF_SETTINGS, EndpointOptions, option_problems, refuse_options
from agentkit.models.http.restored_text import RestoredText, unmarked_text
from agentkit.models.http.sdk_clients import refuse_address
from agentkit.models.http.warned_once import WarnedOnce
from agentkit.models.model_errors import ModelRequestError, ToolsTwiceWarning, UnreadableCallsWarning
from agentkit.models.settings import Fields, ModelSettings, merged_body
from agentkit_prompts.chat_templates.generation import KnownSpans
from agentkit_prompts.chat_templates.guard.control_tokens import tokens_of
from agentkit_prompts.chat_templates.guard.token_marks import token_marks
from agentkit_prompts.chat_templates.normalise import template_message
from agentkit_prompts.chat_templates.reasoning_tags import opens_thought
from agentkit_prompts.chat_templates.template_finder import GivenTemplate, find_chat_template
from agentkit_prompts.chat_templates.template_variables import check_variables
from agentkit_prompts.chat_templates.tool_calls.formats import HARMONY, checked_format
from agentkit_prompts.composition.fit_budget import without_oldest
from agentkit_prompts.composition.marked_content import marked_content
from agentkit_prompts.composition.targets.chat_text import policy_problem_of, text_tokens
from agentkit_prompts.composition.targets.token_row import prompt_ids
from agentkit_prompts.composition.targets.tools_in_text import (
    calls_as_text,
    has_place_for_tools,
    shows_tools,
)
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.sampled_tokens import resealed
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.errors import ChatTemplateError, Problem, brief, kind_of
from agentkit_prompts.tokens.id_tokenizer import IdTokenizer

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from agentkit.models.http.delta_sink import DeltaSink
    from agentkit.models.http.reader import Reader
    from agentkit.models.model import OnDelta, Reply
    from agentkit_prompts.chat_templates.guard.control_tokens import Policy
    from agentkit_prompts.chat_templates.protocol import ChatTemplate
    from agentkit_prompts.composition.call_content import CallContent
    from agentkit_prompts.composition.composition import Composition
    from agentkit_prompts.tokens.id_tokenizer import GivenTokenizer

_FIELDS: Fields = {name: name for name in ("temperature", "top_p", "top_k", "max_tokens", "stop", "seed")}
_OWN = ("chat_template", "client", "control_tokens", "template_kwargs", "session_len", "tokenizer")
_MAX_TOKENS = 1024
_REPLY = "Qreply"
"""Placeholder of a reply without any markup."""
_SAMPLING = ("temperature", "top_p", "top_k", "repetition_penalty")


class CompletionModel(EndpointModel):
    """A model of completions, requested through the official `openai` SDK.

    `chat_template` writes the prompt: a template, the name of a registered template or of a model, a
    `ChatTemplateConfig`, a file, or the folder of a model. By default the name of the model determines the template.
    `control_tokens` is the handling of untrusted text that forms control tokens (see `Composition.to_text`), and
    `template_kwargs` are other variables of the template, such as `enable_thinking`. `EndpointOptions` describes the
    other options.

    The template contains defaults for temperature, top_p, top_k, the repetition penalty and the stop words.
    `max_tokens` is always sent, 1,024 by default, because endpoints stop after 16 tokens without it. The schema of an
    output type is sent as `response_format`. `session_len` is the maximum of prompt and reply together in tokens, by
    default the `session_len` of the template: the oldest history is removed until both fit, see `fitted`.

    With `tokenizer`, prompts are sent as token ids, and a reply stores the ids and log probabilities that the server
    returns, as vLLM and SGLang do. The next prompt contains these ids, so that `to_sample(tokenizer=)` of a result has
    the tokens that the model sampled.

    Tool calls that the model writes into its text become tool calls of the reply, in the `tool_call_format` of the
    template, or in any known format if the template names none. Calls inside of a thinking block stay text. A call that
    cannot be read is an error for the model: an agent requests it once more.

    Raises:
        ModelRequestError: `base_url` is not an http address.
        AgentDefinitionError: Names every setting that completions do not support; or every option with an invalid
            value.
        UnknownOption: Names all unknown options, and the right place of settings.
        ChatTemplateError: The chat template is unknown, no template is known for the model, or the template does not
            read a variable of `template_kwargs`; names similar templates or variables.
        PromptError: `tokenizer` is no tokenizer, or its file cannot be read.
    """

    path = "/completions"
    requests_usage = True
    default_max_tokens = _MAX_TOKENS
    """Maximum tokens of a reply without the setting `max_tokens`."""

    def __init__(
        self,
        model: str,
        chat_template: GivenTemplate | None = None,
        *,
        client: AsyncOpenAI | None = None,
        control_tokens: Policy = "escape",
        template_kwargs: Mapping[str, Any] | None = None,
        session_len: int | None = None,
        tokenizer: GivenTokenizer | None = None,
        **options: Unpack[EndpointOptions],
    ) -> None:
        check_names("CompletionModel", options, (*EndpointOptions.__annotations__, *_OWN), OF_SETTINGS)
        # Otherwise the error is about the chat template of a model with this name.
        if isinstance(model, str):
            refuse_address(model)
        template = find_chat_template(chat_template, model)
        if session_len is None:
            session_len = getattr(template, "session_len", None)
        problems = option_problems(options)
        if session_len is not None and (type(session_len) is not int or session_len < 1):
            text = f"expected a number of tokens, 1 or more, got {brief(session_len, 40)}"
            problems.append(Problem("session_len", text))
        if template_kwargs is not None and not isinstance(template_kwargs, Mapping):
            problems.append(Problem("template_kwargs", f"expected names with values, got {kind_of(template_kwargs)}"))
        policy_problem = policy_problem_of(control_tokens)
        if policy_problem is not None:
            problems.append(policy_problem)
        refuse_options("CompletionModel", problems)
        variables = dict(template_kwargs or {})
        check_variables("template_kwargs", variables, template)
        self.session_len: int | None = session_len
        """Maximum tokens of prompt and reply together; None if the maximum is unknown."""
        self.chat_template: ChatTemplate = template
        self._warned = WarnedOnce(model)
        self._format = checked_format(getattr(template, "tool_call_format", None))
        self.control_tokens: Policy = control_tokens
        """Handling of untrusted text that forms control tokens of the chat template."""
        self.template_kwargs: Mapping[str, Any] = variables
        """Other variables of the chat template."""
        self.tokenizer: IdTokenizer | None = None
        """Tokenizer of the model; None if prompts are sent as text."""
        if tokenizer is not None:
            self.tokenizer = IdTokenizer.of(tokenizer)
        self._known_spans = KnownSpans()
        super().__init__(model, client=client, **options)

    @cached_property
    def has_place_for_tools(self) -> bool:
        """True if the chat template writes tools; otherwise the layers of the agent must contain a `ToolPrompt`."""
        return has_place_for_tools(self.chat_template, **self.template_kwargs)

    @property
    def stop_words(self) -> tuple[str, ...]:
        """Stop words of the settings, or else of the chat template."""
        stop: Any = self._settings_body.get("stop", ())
        if isinstance(stop, str):
            return (stop,)
        return tuple(stop)

    def _fields(self) -> Fields:
        return _FIELDS

    def _apply_settings(self, settings: ModelSettings) -> None:
        super()._apply_settings(settings)
        template = self.chat_template
        # Settings replace the defaults of the template.
        defaults = {name: getattr(template, name, None) for name in _SAMPLING}
        if template.stop_words:
            defaults["stop"] = list(template.stop_words)
        body = {name: value for name, value in defaults.items() if value is not None}
        self._settings_body = {**body, **self._settings_body}

    def _guarded(self, composition: Composition) -> tuple[Composition, RestoredText | None]:
        """Return the composition with a further mark in tokens with marks, and the restorer of replies.

        `Composition.to_text` adds the mark to tokens without marks.
        """
        tokens = tokens_of(self.chat_template)
        _, broken = marked_content(composition, token_marks(tokens))
        if not broken or self.control_tokens != "escape":
            return composition, None
        marked, _ = marked_content(composition, token_marks(tokens, is_repeated=True))
        return marked, unmarked_text(broken, is_json=composition.is_answered_in_json)

    def _body(self, composition: Composition) -> dict[str, Any]:
        composition = self.fitted(composition)
        body: dict[str, Any] = {"model": self.name, "prompt": "", "max_tokens": _MAX_TOKENS}
        if self.tokenizer is None:
            body["prompt"] = self.prompt(composition)
        else:
            body["prompt"] = self.prompt_ids(composition, self.tokenizer)
            body.update(TOKEN_OPTIONS)
        # The reply may use the remaining tokens of the session.
        if self.session_len is not None:
            body["max_tokens"] = min(_MAX_TOKENS, self.session_len - composition.tokens)
        if composition.output_schema is not None:
            schema = {"name": "answer", "schema": composition.output_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def prompt(self, composition: Composition) -> str:
        """Return the text of a composition that is `fitted`. Raises the errors of `Composition.to_text`."""
        return clean(
            composition.to_text(self.chat_template, control_tokens=self.control_tokens, **self.template_kwargs)
        )

    def prompt_ids(self, composition: Composition, tokenizer: IdTokenizer) -> list[int]:
        """Return the token ids of a composition that is `fitted`. Raises the errors of `Composition.to_sample`."""
        return prompt_ids(
            composition,
            self.chat_template,
            tokenizer,
            control_tokens=self.control_tokens,
            known_spans=self._known_spans,
            **self.template_kwargs,
        )

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Send the composition and return the reply; see `EndpointModel.request`.

        Raises:
            TokenizerError: The tokenizer does not fit the prompt, or does not fit the ids of the server.
            ModelError: The request failed.
        """
        reply = await super().request(composition, on_delta=on_delta)
        if self.tokenizer is None:
            return reply
        # Control tokens of the content were restored after the tokens were stored.
        return replace(reply, message=resealed(reply.message))

    def fitted(self, composition: Composition) -> Composition:
        """Return a composition trimmed to the `session_len`, with tokens left for the reply.

        The oldest turns of the history are removed as far as necessary. The token counter of the composition counts
        the text that the chat template writes; without a token counter the count is an estimate. Tools that only a
        `ToolPrompt` contains are neither sent separately nor counted.

        Raises:
            ModelRequestError: The prompt is too long even without history.
        """
        if composition.tools and shows_tools(composition.layers):
            if not self.has_place_for_tools:
                composition = composition.without_tools()
            else:
                self._warned.warn(
                    ToolsTwiceWarning,
                    "the tools are sent twice, by its chat template and by a ToolPrompt; remove the ToolPrompt for "
                    "this model",
                )
        if composition.tools and not getattr(self.chat_template, "reads_its_calls", True):
            self._warned.warn(
                UnreadableCallsWarning,
                "the tool calls that its chat template renders cannot be read, so a call may end the run as text; pass "
                "the tool_call_format of the model",
            )
        composition = composition.written_by(self.text_tokens)
        session_len = self.session_len
        if session_len is None:
            return composition
        limit = session_len - (self._settings_body.get("max_tokens") or min(_MAX_TOKENS, session_len // 4))
        composition = without_oldest(composition, limit, f"session_len is {session_len}")
        if composition.tokens > limit:
            raise ModelRequestError(
                f"the prompt needs about {composition.tokens} tokens without history, and session_len {session_len} "
                f"leaves {max(limit, 0)} besides the reply: send less, set a smaller max_tokens, or pass the "
                "session_len of the server",
                model=self.name,
                host=self.host,
                name="session_len",
                value=session_len,
            )
        return composition

    def text_tokens(self, composition: CallContent) -> int:
        """Return the tokens of the text of a composition, counted by the token counter of the composition."""
        return text_tokens(composition, self.chat_template, control_tokens=self.control_tokens, **self.template_kwargs)

    async def complete(self, text: str) -> Reply:
        """Send a text without the chat template and its guard, and return the completion.

        Raises:
            ModelError: The request failed; see `request`.
        """
        body = {"model": self.name, "prompt": clean(text), "max_tokens": _MAX_TOKENS}
        reader = await self._send(merged_body(body, self._settings_body), lambda: CompletionReader({}, None))
        return reader.reply(self.name)

    async def score(self, text: str) -> TextScore:
        """Return the log probability of each token of a text, requested with `echo` and `logprobs`.

        Raises:
            ModelReplyError: The endpoint sends no log probabilities of a prompt.
            ModelError: The request failed; see `request`.
        """
        body = {"model": self.name, "prompt": text, "echo": True, "logprobs": 1, "temperature": 0.0, "max_tokens": 1}
        # Only `extra` is sent: sampling settings must not change the scores.
        body = merged_body(body, self.settings.extra)
        reader = await self._send(body, lambda: EchoReader(text, self.name, self.host))
        return replace(reader.score(), usage=reader.usage)

    def _reader(self, composition: Composition) -> CompletionReader:
        tools, format = composition.tools, self._format
        is_shown = shows_tools(composition.layers)
        if is_shown:
            tools = (*composition.context.tools, *tools)
            # The instructions of a ToolPrompt determine the format, so any known format is recognised.
            if format != HARMONY:
                format = None
        return CompletionReader(
            {tool.name: tool.parameters for tool in tools},
            format,
            self._space_before,
            opening=self._space_of_reply,
            stores_text=is_shown and not self.has_place_for_tools,
            leading=LeadingThoughts(is_open=self._opens_thought),
            owner=Owner("completion", self.host, self.name),
        )

    async def _read_reply(self, body: dict[str, Any], composition: Composition, sink: DeltaSink) -> Reader:
        tokenizer = self.tokenizer
        if tokenizer is None:
            return await super()._read_reply(body, composition, sink)

        def new_reader() -> CompletionReader:
            reader = self._reader(composition)
            reader.tokens = ReplyTokens(tokenizer, self.stop_words, body["prompt"])
            return reader

        return await self._send_with_retries(body, new_reader, sink)

    @cached_property
    def _opens_thought(self) -> bool:
        """True if the prompt ends in the opening tag of a thinking block."""
        try:
            return opens_thought(self.chat_template.render([{"role": "user", "content": "a"}], **self.template_kwargs))
        except ChatTemplateError:
            return False

    @cached_property
    def _space_of_reply(self) -> str:
        """White space before a reply in the next prompt that the prompt of the reply does not contain."""
        question = [{"role": "user", "content": "a"}]
        conversation = [*question, {"role": "assistant", "content": _REPLY}]
        try:
            before = self.chat_template.render(question, **self.template_kwargs)
            after = self.chat_template.render(conversation, None, False, **self.template_kwargs)
        except ChatTemplateError:
            return ""
        space = after[len(before) : after.find(_REPLY, len(before))]
        if after.startswith(before) and space.isspace():
            return space
        return ""

    def _space_before(self, text: str, call: ToolCall, opening: str) -> str:
        """Return the white space of the next prompt between the text of a reply and the opening tag of its call."""
        message = Message("assistant", text, (call,))
        for form in (message, calls_as_text(message)):
            try:
                conversation = [template_message(Message("user", "a")), template_message(form)]
                prompt = self.chat_template.render(conversation, None, False, **self.template_kwargs)
            except ChatTemplateError:
                # The template supports no calls; the second form contains them as text.
                continue
            # Only the last line is compared, because the template may omit thinking before it.
            match = space_pattern(text.rpartition("\n")[2], opening).search(prompt)
            if match is None:
                break
            return match[1]
        return ""
