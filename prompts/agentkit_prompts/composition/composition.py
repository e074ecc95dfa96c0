"""`Composition`: the content of one model call, with its reports and request formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.call_content import CallContent
from agentkit_prompts.composition.sections import Fragment, Section
from agentkit_prompts.composition.targets.openai_request import openai_payload
from agentkit_prompts.composition.targets.plain_text import plain_text
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Text
from agentkit_prompts.context.short_repr import short_text
from agentkit_prompts.errors import BudgetError, ChatTemplateError, PromptError, kind_of
from agentkit_prompts.hints import Hinted

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.guard.control_tokens import Policy
    from agentkit_prompts.chat_templates.template_finder import GivenTemplate
    from agentkit_prompts.composition.diff import Diff
    from agentkit_prompts.composition.explain import LayerTable
    from agentkit_prompts.composition.prefix import Breakpoint
    from agentkit_prompts.composition.targets.training_row import Trained
    from agentkit_prompts.composition.untrusted_sources import UntrustedSource
    from agentkit_prompts.composition.why import Why
    from agentkit_prompts.context.wire.write_openai_chat import Required
    from agentkit_prompts.tokens.id_tokenizer import GivenTokenizer


class Composition(CallContent, metaclass=Hinted):
    """Content of one model call; it is not sent by this class. Created by `compose`; read-only."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The messages as one plain string, each with its role as heading."""
        return plain_text(self)

    def explain(self) -> LayerTable:
        """Return the layer table: tokens and origin of each layer, and the effect of the budget.

        Rows are in the order they are sent; their tokens add up to `tokens`. `print(...)` draws it.
        """
        from agentkit_prompts.composition.explain import layer_table

        return layer_table(self)

    def why(self, pointer: str) -> Why:
        """Return the place of a prompt or value in the composition, or the reason for its absence.

        Args:
            pointer: A row of the layer table, the path, name or file of a prompt, or a path into the context, such as
                `before_input[0]`, `overhead`, `documents[3].text` or `additional_kwargs.root`.

        Raises:
            PromptError: Neither the layers nor the context contain the pointer; names the nearest valid name.
        """
        from agentkit_prompts.composition.why import why

        return why(self, pointer)

    def diff(self, previous: Composition) -> Diff:
        """Return the first layer that differs from an earlier composition, and the number of tokens before it."""
        from agentkit_prompts.composition.diff import diff

        if not isinstance(previous, Composition):
            received = kind_of(previous)
            raise PromptError(f"diff: expected a Composition, got {received}", name="previous", value=received)
        return diff(self, previous)

    @property
    def untrusted(self) -> tuple[UntrustedSource, ...]:
        """The sources of the untrusted text, such as the input, documents and results of tools; computed when read.

        They are in the order in which their text is sent.
        """
        from agentkit_prompts.composition.untrusted_sources import untrusted_sources

        return untrusted_sources(self)

    @property
    def breakpoints(self) -> tuple[Breakpoint, ...]:
        """The cache points of the payload, at most four."""
        from agentkit_prompts.composition.prefix import breakpoints

        return breakpoints(self)

    @property
    def prefix_hash(self) -> str:
        """Hash of the content before the first text that changes every turn: the part that a provider can cache."""
        return self._prefix()[0]

    @property
    def prefix_tokens(self) -> int:
        """Number of tokens that `prefix_hash` covers."""
        return self._prefix()[1]

    def _prefix(self) -> tuple[str, int]:
        from agentkit_prompts.composition.prefix import prefix

        return prefix(self)

    @property
    def versions(self) -> dict[str, str]:
        """Content hash of every prompt's template, by prompt path."""
        return {path: prompt.template.version for path, prompt in self.layers.walk()}

    def mapped(self, change: Callable[[str], str]) -> Composition:
        """Return the composition with `change` applied to every text, for example to redact it.

        `change` receives one span at a time, and each message of the conversation whole; tool specs are unchanged.

        Raises:
            BudgetError: The changed text is longer and exceeds the budget.
        """
        sections: list[Section] = []
        for section in self.sections:
            fragments = [Fragment(path, prompt, rendered.map(change)) for path, prompt, rendered in section.fragments]
            sections.append(Section(fragments, section.label))
        composition = self.evolve(
            sections=sections,
            text_tokens=None,
            conversation=Conversation(_mapped(message, change) for message in self.conversation),
            intermediate=Conversation(_mapped(message, change) for message in self.intermediate),
        )
        if self.budget is not None and composition.tokens > self.budget.tokens:
            raise BudgetError(
                f"the changed text needs {composition.tokens} tokens and the budget is {self.budget.tokens}: "
                "return a shorter text from `change`, or raise the budget",
                required=composition.tokens,
                limit=self.budget.tokens,
            )
        return composition

    def to_openai(
        self, host: str | None = None, *, model: str = "", required: Required | None = None
    ) -> dict[str, Any]:
        """Return the payload of a chat-completions request: `messages`, and `tools` if it has tools.

        `host` and `model` are the receiver: thinking and signatures of another receiver are left out; see `Message`.
        `required` names the field that the endpoint requires in every reply, including replies of other models.
        """
        return openai_payload(self, host, model, required)

    def to_anthropic(self, host: str | None = None, *, model: str = "") -> dict[str, Any]:
        """Return the payload of an Anthropic messages request: `messages`, and `system` and `tools` if not empty.

        `host` and `model` are the receiver: thinking and signatures of another receiver are left out; see `Message`.
        """
        from agentkit_prompts.composition.targets.anthropic_request import anthropic_payload

        return anthropic_payload(self, host, model)

    def to_responses(self, host: str | None = None, *, model: str = "") -> dict[str, Any]:
        """Return the payload of a Responses request: `input`, and `instructions` and `tools` if not empty.

        `host` and `model` are the receiver: thinking and signatures of another receiver are left out; see `Message`.
        """
        from agentkit_prompts.composition.targets.responses_request import responses_payload

        return responses_payload(self, host, model)

    def to_sample(
        self,
        reply: Message | Mapping[str, Any] | str,
        chat_template: GivenTemplate | None = None,
        *,
        reply_only: bool = False,
        tokenizer: GivenTokenizer | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return a fine-tuning row: `messages`, `tools`, their `text`, and the `loss_spans` of this text.

        With a tokenizer, the row also has one entry per token in `input_ids`, `labels` (-100 outside of the loss),
        `log_probabilities` (None if unknown) and `weights` (1 in the loss, else 0). A reply of a `CompletionModel` with
        a tokenizer has the ids that the model sampled.

        Args:
            reply: Reply that the model learns: text, or an assistant message.
            chat_template: Chat template that writes `text`, as for `to_text`; plain roles by default.
            reply_only: True if `loss_spans` contain the reply only. If False, they contain all text of the assistant,
                also in the history, so that a model is trained on the answers of worked examples once per row.
            tokenizer: Tokenizer of the model: a `tokenizers.Tokenizer`, or the path of a `tokenizer.json` or of its
                folder. It needs a chat template.
            kwargs: Other values that the template reads.

        Raises:
            PromptError: The reply is not an assistant message.
            ChatTemplateError: The template refuses the conversation, or its loss spans are unknown.
            TokenizerError: The tokenizer does not fit the text, or does not fit the sampled ids of a reply.
        """
        from agentkit_prompts.composition.targets.training_row import sample

        trained: Trained = "reply" if reply_only else "all"
        return sample(self, reply, chat_template, trained=trained, tokenizer=tokenizer, **kwargs)

    def to_text(
        self,
        chat_template: GivenTemplate | None = None,
        *,
        control_tokens: Policy = "escape",
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """Return the messages as one string, with plain roles or formatted by the chat template of a local model.

        Args:
            chat_template: Chat template: a template object, the name of a registered template or of a model, a
                `ChatTemplateConfig`, a file, or the folder of a model. Without it the other arguments have no effect. A
                Jinja template without `now` uses the `now` of the context.
            control_tokens: Policy for untrusted text that would form a control token of the template: `escape` inserts
                a zero-width space after the first character of the token, `reject` raises, `allow` does nothing.
            add_generation_prompt: True if the text ends with the opening of the model's reply.
            kwargs: Other values that the template reads, such as `enable_thinking`. `documents` are untrusted.

        Raises:
            ChatTemplateError: No template has this name, or the template cannot represent the conversation.
            ControlTokenError: Untrusted text contains control tokens and `control_tokens` is `reject`; names each token
                and its origin.
        """
        if chat_template is None:
            if kwargs:
                raise ChatTemplateError(
                    f"to_text: {', '.join(kwargs)}: only a chat template reads these options; pass chat_template",
                    name=next(iter(kwargs)),
                )
            return plain_text(self)
        from agentkit_prompts.composition.targets.chat_text import chat_text

        return chat_text(
            self,
            chat_template,
            control_tokens=control_tokens,
            add_generation_prompt=add_generation_prompt,
            **kwargs,
        )

    def __repr__(self) -> str:
        return f"Composition({short_text(self.text)})"

    def __str__(self) -> str:
        """Return the text; see `text`."""
        return self.text


def _mapped(message: Message, change: Callable[[str], str]) -> Message:
    content = message.content
    if isinstance(content, str):
        content = change(content)
    else:
        parts = [*content]
        for number, part in enumerate(parts):
            if isinstance(part, Text):
                parts[number] = Text(change(part.text), kind=part.kind)
        content = tuple(parts)
    calls = tuple(replace(call, arguments=change(call.arguments), opaque={}) for call in message.tool_calls)
    name = message.name
    if name:
        name = change(name)
    # Opaque data and thinking are signed by the provider and cannot be changed, so they are removed.
    return replace(message, content=content, tool_calls=calls, name=name, thinking=(), opaque={})
